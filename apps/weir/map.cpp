// SPDX-License-Identifier: MIT
// apps/weir/map.cpp — `weir map`: draws how the free memory of a zone lies while it is taken, given back at
// random, and put together again. Calls page, stats/frag_map.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "apps/weir/command.hpp"
#include "apps/weir/output.hpp"
#include "lab/harness/json.hpp"
#include "lab/harness/machine.hpp"
#include "weir/os/system_info.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/stats/frag_map.hpp"

namespace weir::app {
namespace {

// Single frames that are taken and given back, pinned or movable; those that move are not touched.
class Load {
 public:
  Load(PageAllocator& pages, bool movable, std::uint64_t seed)
      : pages_(pages), movable_(movable), random_(seed) {
    if (movable) {
      pages.add_mover(mover_);
    }
  }
  ~Load() {
    mover_.remove();
    give_share(1.0);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void take_all() { take(pages_.effective().managed.value); }
  // Takes as many as it can, at most n.
  void take(std::uint64_t n) {
    for (; n != 0; --n) {
      Page* const page = movable_ ? pages_.alloc_movable(mover_) : pages_.alloc_page();
      if (page == nullptr) {
        return;
      }
      page->private_word = live_.size();
      live_.push_back(page);
    }
  }
  // Gives back a share of what lives, at random; returns how many.
  std::uint64_t give_share(double share) {
    const auto n = static_cast<std::uint64_t>(static_cast<double>(live_.size()) * share);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t which = random_() % live_.size();
      Page* const page = live_[which];
      live_[which] = live_.back();
      live_[which]->private_word = which;
      live_.pop_back();
      unref(page);
    }
    return n;
  }

 private:
  PageAllocator& pages_;
  const bool movable_;
  std::mt19937_64 random_;
  std::vector<Page*> live_;
  PageMover mover_{{[](void*, Page*) noexcept { return true; },
                    [](void* self, Page* from, Page* to) noexcept {
                      static_cast<Load*>(self)->live_[from->private_word] = to;
                      return true;
                    },
                    [](void*, Page*) noexcept {}},
                   this};
};

struct MapCommand {
  Output output;
  std::string options_text;
  double given = 0.5;
  unsigned rounds = 20;
  unsigned width = 64;
  std::uint64_t seed = 1;
  bool movable = false;

  std::string text;
  std::vector<lab::Row> rows;

  int run() {
    Options options;
    options = with_environment(options);
    const OptionProblem problem = parse_options(options_text, options);
    if (problem.code != Errc::ok) {
      throw CommandError(kBadUsage, fmt::format("--options: {}", problem.line.data()));
    }
    output.open();
    try {
      PageAllocator pages(options);
      draw_all(pages);
    } catch (const std::invalid_argument& error) {
      throw CommandError(kBadUsage, error.what());
    } catch (const std::system_error& error) {
      throw CommandError(kFailed, error.what());
    }
    output.print(text);
    output.write_json(lab::json_text(lab::to_json(lab::machine_card(system_info()), rows)));
    return kDone;
  }

  void draw_all(PageAllocator& pages) {
    text +=
        ".  wholly free     1..9  tenths in use       #  full              !  withheld\n"
        "W  out as a block  a..i  the same, movables  @  full of movables  _  trimmed\n";
    Load load(pages, movable, seed);
    load.take_all();
    load.give_share(given);
    show(pages, "scattered",
         fmt::format("all frames taken one by one, {:.0f} % given back at random", given * 100));
    for (unsigned round = 0; round < rounds; ++round) {
      load.take(load.give_share(0.1));
    }
    show(pages, "churned",
         fmt::format("{} rounds, each giving back a tenth at random and taking as many", rounds));
    static_cast<void>(pages.drain_all());
    show(pages, "drained", "lists and depot emptied into the engine");
    if (movable) {
      const CompactionReport report = pages.compact();
      show(
          pages, "compacted",
          fmt::format("{} pageblocks emptied by carrying {} frames", report.emptied, report.moved));
    }
    load.give_share(1.0);
    static_cast<void>(pages.drain_all());
    show(pages, "empty", "everything given back");
    const Bytes returned = pages.trim();
    show(pages, "trimmed", fmt::format("{} MiB given back to the system", returned.value >> 20));
  }

  void show(PageAllocator& pages, const char* name, const std::string& what) {
    const FragMap map = frag_map(pages);
    const std::string drawn =
        map.pageblocks.empty() ? "  the zone is smaller than a pageblock (2 MiB): nothing to draw\n"
                               : draw(map, width);
    text += fmt::format("\n{}: {}\n{}\nfree blocks of order ", name, what, drawn);
    for (unsigned order = 0; order < kOrderCount; ++order) {
      text += fmt::format("{:7}", order);
    }
    text += fmt::format("\n{}", buddyinfo_text(map));
    const double share =
        map.free == 0 ? 0
                      : 100.0 * static_cast<double>(map.whole_pageblocks() * kPageblockFrames) /
                            static_cast<double>(map.free);
    const unsigned unusable = map.unusable_index(kPageblockOrder);
    text += fmt::format(
        "{} of {} frames free, {:.1f} % of them in wholly free pageblocks; share of no use for 2 "
        "MiB: "
        "{}.{:03}\n",
        map.free, map.managed, share, unusable / 1000, unusable % 1000);
    const auto row = [&](const std::string& metric, const char* unit, double value) {
      rows.push_back({"map", name, "weir.page", metric, unit, value, value, value, 1});
    };
    row("free", "frames", static_cast<double>(map.free));
    row("whole_pageblocks", "blocks", static_cast<double>(map.whole_pageblocks()));
    row("unusable_index_order9", "thousandths", unusable);
    row("extfrag_index_order9", "thousandths", map.extfrag_index(kPageblockOrder));
    for (unsigned order = 0; order < kOrderCount; ++order) {
      row(fmt::format("free_blocks_order{}", order), "blocks",
          static_cast<double>(map.blocks_of_order[order]));
    }
  }
};

}  // namespace

void add_map(CLI::App& app, Action& chosen) {
  auto command = std::make_shared<MapCommand>();
  CLI::App* sub = app.add_subcommand(
      "map",
      "Draws how free memory lies while it is taken and given back at random; with --movable also "
      "while it is put together");
  sub->add_option("--options", command->options_text,
                  "Options of the allocator, over those of WEIR_OPTIONS")
      ->type_name("NAME=VALUE,...");
  sub->add_option("--given", command->given, "Share that is given back at first")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--rounds", command->rounds, "Rounds of churn")
      ->check(CLI::Range(0U, 10000U))
      ->capture_default_str();
  sub->add_flag("--movable", command->movable,
                "Pages that may be carried elsewhere, and compaction");
  sub->add_option("--width", command->width, "Pageblocks in a line")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  sub->add_option("--seed", command->seed, "Of what is given back")->capture_default_str();
  command->output.add_json(*sub);
  sub->callback([command, &chosen] { chosen = [command] { return command->run(); }; });
}

}  // namespace weir::app
