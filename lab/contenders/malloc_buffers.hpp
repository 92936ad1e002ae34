// SPDX-License-Identifier: MIT
// lab/contenders/malloc_buffers.hpp — buffers from a malloc and a free: the C library's, or those
// of an allocator library loaded at run time. Owns neither library nor memory.
#pragma once

#include <cstddef>

#include "lab/contenders/buffers.hpp"
#include "lab/harness/sanitizers.hpp"

namespace weir::lab {

using MallocFunction = void* (*)(std::size_t);
using FreeFunction = void (*)(void*);

class MallocBuffers : public OneByOne<MallocBuffers>, public Plain {
 public:
  using Handle = std::byte*;

  MallocBuffers(MallocFunction malloc_function, FreeFunction free_function)
      : malloc_(malloc_function), free_(free_function) {}

  [[gnu::always_inline]] Handle alloc() noexcept {
    auto* buffer = static_cast<std::byte*>(malloc_(kBufferBytes));
    tsan_acquire(buffer);  // pairs: free; what a library that is not instrumented orders inside
    return buffer;
  }
  [[gnu::always_inline]] void free(Handle buffer) noexcept {
    tsan_release(buffer);  // pairs: alloc
    free_(buffer);
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  MallocFunction malloc_;
  FreeFunction free_;
};

}  // namespace weir::lab
