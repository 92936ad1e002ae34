// SPDX-License-Identifier: MIT
// lab/experiments/bulk.cpp — the experiment `bulk`.
#include <fmt/format.h>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment bulk_experiment() {
  Experiment e;
  e.name = "bulk";
  e.question = "What does a page cost when N are taken at once and given back at once?";
  e.source =
      "alloc_pages_bulk_array of Linux and the bulk calls of rte_mempool: the refill of a "
      "receive ring";
  e.expected =
      "with arrays, well below a nanosecond a page from 32 on; where each page is linked or "
      "locked by itself, as much as a pair whatever N is";
  e.meaning =
      "One CPU, nothing touched. The same array of N usable pointers is filled and given back "
      "(weir.index: of 32-bit indexes); N = 1 is the bulk call for one. Contenders without a bulk "
      "call loop, as their users must.";
  e.workload = Workload::bulk;
  e.metric = {"time", "ns", "ns a page", 1, false};
  for (const std::uint32_t batch : {1U, 4U, 8U, 16U, 32U, 64U, 128U}) {
    e.cases.push_back({fmt::format("{}", batch),
                       fmt::format("{} pages of 4096 bytes", batch),
                       batch,
                       batch == 8 || batch == 64,
                       {}});
  }
  e.contenders = {"weir.page",  "weir.ref",        "weir.index",         "weir.pool",
                  "weir.frag",  "dpdk.mempool",    "dpdk.mempool-stack", "dpdk.mbuf",
                  "mimalloc",   "jemalloc",        "tcmalloc",           "glibc",
                  "mutex-list", "mutex-list+bulk", "spin-list",          "spin-list+bulk",
                  "floor.array"};
  e.references = {"dpdk.mempool", "dpdk.mbuf", "mutex-list+bulk", "floor.array"};
  return e;
}

}  // namespace weir::lab
