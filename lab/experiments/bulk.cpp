// SPDX-License-Identifier: MIT
// lab/experiments/bulk.cpp — the experiment `bulk`.
#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment bulk_experiment() {
  Experiment e;
  e.name = "bulk";
  e.question = "What does a page cost when 64 are taken at once and given back at once?";
  e.source =
      "alloc_pages_bulk_array of Linux and the bulk calls of rte_mempool: the refill of a "
      "receive ring";
  e.expected =
      "with arrays, well below a nanosecond a page; where each page is linked or locked by "
      "itself, as much as a pair";
  e.meaning = "One CPU, nothing touched. Contenders without a bulk call loop, as their users must.";
  e.workload = Workload::bulk;
  e.metric = {"time", "ns", "ns a page", 1, false};
  e.cases = {{"64", "64 pages of 4096 bytes"}};
  e.contenders = {"weir.page",    "weir.pool",
                  "weir.frag",    "weir.pool+free_order0=engine",
                  "dpdk.mempool", "dpdk.mempool-stack",
                  "mimalloc",     "jemalloc",
                  "tcmalloc",     "glibc",
                  "mutex-list",   "mutex-list+bulk",
                  "spin-list",    "spin-list+bulk"};
  return e;
}

}  // namespace weir::lab
