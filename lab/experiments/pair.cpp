// SPDX-License-Identifier: MIT
// lab/experiments/pair.cpp — the experiment `pair`.
#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment pair_experiment() {
  Experiment e;
  e.name = "pair";
  e.question = "What does it cost to take one page and give it back on the same CPU?";
  e.source =
      "the oldest allocator benchmark there is; in kernels: a loop of alloc_page and free_page";
  e.expected =
      "a per-CPU array needs 2 to 7 ns; a lock adds its pair of atomic operations; malloc "
      "at this size leaves its fast path";
  e.meaning =
      "The page stays hot and is not touched: the fast path alone, which no real program "
      "consists of.";
  e.workload = Workload::pair;
  e.metric = {"time", "ns", "ns a pair", 1, false};
  e.cases = {{"page", "4096 bytes"}};
  e.contenders = {"weir.page",    "weir.pool",
                  "weir.frag",    "weir.pool+free_order0=engine",
                  "dpdk.mempool", "dpdk.mempool-stack",
                  "mimalloc",     "jemalloc",
                  "tcmalloc",     "glibc",
                  "mutex-list",   "spin-list"};
  return e;
}

}  // namespace weir::lab
