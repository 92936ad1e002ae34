// SPDX-License-Identifier: MIT
// golden/fast_path.cpp — the hot paths as a program outside sees them, one function each, so that
// their instructions can be read and compared (check_golden.py). Is compiled, never run.
#include <cstddef>
#include <span>

#include "weir/page/node_allocator.hpp"
#include "weir/page/page_allocator.hpp"

using weir::NodeAllocator;
using weir::Page;
using weir::PageAllocator;

extern "C" {
[[gnu::visibility("default")]] Page* golden_alloc(PageAllocator& pages);
[[gnu::visibility("default")]] Page* golden_node_alloc(NodeAllocator& pages);
[[gnu::visibility("default")]] void golden_free(Page* page);
[[gnu::visibility("default")]] std::size_t golden_alloc_burst(PageAllocator& pages, Page** out,
                                                              std::size_t n);
[[gnu::visibility("default")]] void golden_free_burst(Page* const* pages, std::size_t n);

Page* golden_alloc(PageAllocator& pages) { return pages.alloc_page(); }

Page* golden_node_alloc(NodeAllocator& pages) { return pages.alloc_page(); }

void golden_free(Page* page) { weir::unref(page); }

std::size_t golden_alloc_burst(PageAllocator& pages, Page** out, std::size_t n) {
  return pages.alloc_burst({out, n});
}

void golden_free_burst(Page* const* pages, std::size_t n) { weir::free_burst({pages, n}); }
}
