// SPDX-License-Identifier: MIT
// zone/block_index.hpp — which pageblocks of a range are in which bucket of occupancy: hints that
// lead to a pageblock in a few loads. Owns no memory and knows no entry: what it says may be stale, and
// whoever follows a hint looks at the entry. Never waits.
//
//   for each bucket     | summary: bit w = word w has a bit | words: bit b = pageblock b is in it |
//   example: 16 GiB are 8192 pageblocks, 128 words and 2 words of summary a bucket
//
// X1: a word that is not zero has its bit in the summary, whenever nobody is inside set() or clear().
#pragma once

#include <bit>
#include <cstdint>
#include <new>

#include "weir/base/atomic.hpp"
#include "weir/base/bits.hpp"
#include "weir/base/hot.hpp"
#include "weir/zone/pageblock_state.hpp"

namespace weir {

// AtomicT is Atomic everywhere but in a test that runs this code step by step.
template <template <class> class AtomicT>
class BasicBlockIndex {
 public:
  using Word = AtomicT<std::uint64_t>;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Memory for so many pageblocks; zero bytes are the empty index.
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint32_t blocks) noexcept {
    return std::uint64_t{kBuckets} * stride(blocks) * sizeof(Word);
  }
  void open(void* zeroed, std::uint32_t blocks) noexcept {
    words_ = static_cast<Word*>(zeroed);
    blocks_ = blocks;
    for (std::uint64_t i = 0; i < std::uint64_t{kBuckets} * stride(blocks); ++i) {
      new (words_ + i) Word{0};
    }
  }
  void clear_all() noexcept {
    for (std::uint64_t i = 0; i < std::uint64_t{kBuckets} * stride(blocks_); ++i) {
      words_[i].store(0, memory_order_relaxed);
    }
  }

  // Sequentially consistent, as the changes of entries: one side changes an entry and looks at the hint,
  // the other changes the hint and looks at the entry, so at least one of them sees what the other did.

  // Does not write when the hint is there already.
  WEIR_HOT void set(unsigned bucket, std::uint64_t block) noexcept {
    // pairs: clear(), before the second look of BasicBitmapEngine::forget
    const std::uint64_t word = word_of(bucket, block / 64).load(memory_order_seq_cst);
    if ((word >> (block % 64) & 1) == 0) [[unlikely]] {
      set_anew(bucket, block);
    }
  }
  void clear(unsigned bucket, std::uint64_t block) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << (block % 64);
    const std::uint64_t at = block / 64;
    Word& word = word_of(bucket, at);
    const std::uint64_t before = word.fetch_and(~bit, memory_order_seq_cst);  // pairs: set()
    if ((before & ~bit) != 0) {
      return;
    }
    const std::uint64_t summary_bit = std::uint64_t{1} << (at % 64);
    // pairs: set_summary(), set()
    summary_of(bucket, at / 64).fetch_and(~summary_bit, memory_order_seq_cst);
    if (word.load(memory_order_seq_cst) != 0) {
      set_summary(bucket, at);
    }
  }
  [[nodiscard]] bool test(unsigned bucket, std::uint64_t block) const noexcept {
    return (word_of(bucket, block / 64).load(memory_order_relaxed) >> (block % 64) & 1) != 0;
  }

  // The first pageblock of a bucket from `from` on, or kNone.
  [[nodiscard]] std::uint32_t next(unsigned bucket, std::uint32_t from) const noexcept {
    return find(bucket, from, [](std::uint64_t word) { return word; });
  }
  // The first even pageblock that is in the bucket together with its neighbour.
  [[nodiscard]] std::uint32_t next_pair(unsigned bucket, std::uint32_t from) const noexcept {
    return find(bucket, from, [](std::uint64_t word) { return run_heads(word, 1); });
  }
  // The same as next(), but one without its neighbour when the same word has such: pairs are kept.
  [[nodiscard]] WEIR_HOT std::uint32_t next_unpaired(unsigned bucket,
                                                     std::uint32_t from) const noexcept {
    return find(bucket, from, [](std::uint64_t word) {
      const std::uint64_t unpaired = lonely_heads(word, 0);
      return unpaired != 0 ? unpaired : word;
    });
  }

  // At rest: X1.
  [[nodiscard]] bool consistent() const noexcept {
    for (unsigned bucket = 0; bucket < kBuckets; ++bucket) {
      for (std::uint32_t at = 0; at < word_count(blocks_); ++at) {
        if (word_of(bucket, at).load(memory_order_relaxed) != 0 &&
            (summary_of(bucket, at / 64).load(memory_order_relaxed) >> (at % 64) & 1) == 0) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  [[nodiscard]] static constexpr std::uint32_t word_count(std::uint32_t blocks) noexcept {
    return div_round_up(blocks, 64U);
  }
  [[nodiscard]] static constexpr std::uint32_t summary_count(std::uint32_t blocks) noexcept {
    return div_round_up(word_count(blocks), 64U);
  }
  // Words from bucket to bucket: whole cache lines.
  [[nodiscard]] static constexpr std::uint32_t stride(std::uint32_t blocks) noexcept {
    return align_up(summary_count(blocks) + word_count(blocks), 8U);
  }
  [[nodiscard]] Word& summary_of(unsigned bucket, std::uint64_t i) const noexcept {
    return words_[std::uint64_t{bucket} * stride(blocks_) + i];
  }
  [[nodiscard]] Word& word_of(unsigned bucket, std::uint64_t i) const noexcept {
    return words_[std::uint64_t{bucket} * stride(blocks_) + summary_count(blocks_) + i];
  }
  [[gnu::noinline]] void set_anew(unsigned bucket, std::uint64_t block) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << (block % 64);
    // pairs: clear()
    if (word_of(bucket, block / 64).fetch_or(bit, memory_order_seq_cst) == 0) {
      set_summary(bucket, block / 64);
    }
  }
  void set_summary(unsigned bucket, std::uint64_t at) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << (at % 64);
    Word& summary = summary_of(bucket, at / 64);
    if ((summary.load(memory_order_seq_cst) & bit) == 0) {  // pairs: clear()
      summary.fetch_or(bit, memory_order_seq_cst);          // pairs: clear()
    }
  }

  // `choose` keeps some of a word's bits.
  template <class Choose>
  [[nodiscard]] WEIR_HOT std::uint32_t find(unsigned bucket, std::uint32_t from,
                                            Choose choose) const noexcept {
    if (from >= blocks_) {
      return kNone;
    }
    std::uint32_t at = from / 64;
    std::uint64_t word =
        choose(word_of(bucket, at).load(memory_order_relaxed) & (~std::uint64_t{0} << (from % 64)));
    while (word == 0) {
      at = next_word(bucket, at + 1);
      if (at == kNone) {
        return kNone;
      }
      word = choose(word_of(bucket, at).load(memory_order_relaxed));
    }
    return at * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
  }
  // The first word from `at` on that the summary names, or kNone.
  [[nodiscard]] std::uint32_t next_word(unsigned bucket, std::uint32_t at) const noexcept {
    if (at >= word_count(blocks_)) {
      return kNone;
    }
    std::uint32_t i = at / 64;
    std::uint64_t summary =
        summary_of(bucket, i).load(memory_order_relaxed) & (~std::uint64_t{0} << (at % 64));
    while (summary == 0) {
      if (++i == summary_count(blocks_)) {
        return kNone;
      }
      summary = summary_of(bucket, i).load(memory_order_relaxed);
    }
    return i * 64 + static_cast<std::uint32_t>(std::countr_zero(summary));
  }

  Word* words_ = nullptr;  // of the range's memory
  std::uint32_t blocks_ = 0;
};

}  // namespace weir
