// SPDX-License-Identifier: MIT
// lab/experiments/pairs.cpp — the experiment `pairs`.
#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment pairs_experiment() {
  Experiment e;
  e.name = "pairs";
  e.question = "What does it cost to take one page and give it back on the same CPU?";
  e.source =
      "the oldest allocator benchmark there is; in kernels: a loop of alloc_page and free_page";
  e.expected =
      "a per-CPU array needs 2 to 7 ns; a lock adds its pair of atomic operations; malloc "
      "at this size leaves its fast path";
  e.meaning =
      "The page stays hot and is not touched: the fast path alone, which no real program "
      "consists of. Four pairs stand in the body of the loop, the compiler knows nothing of the "
      "page, and memory counts as changed between taking and giving. Two zones of weir are alive.";
  e.workload = Workload::pairs;
  e.metric = {"time", "ns", "ns a pair", 1, false};
  e.cases = {{"4k", "4096 bytes"}};
  e.contenders = {"weir.page",    "weir.ref",           "weir.pool",  "weir.frag",
                  "dpdk.mempool", "dpdk.mempool-stack", "dpdk.mbuf",  "mimalloc",
                  "jemalloc",     "tcmalloc",           "glibc",      "mutex-list",
                  "spin-list",    "floor.rseq",         "floor.array"};
  e.references = {"dpdk.mempool", "dpdk.mbuf", "mimalloc", "tcmalloc", "floor.rseq", "floor.array"};
  return e;
}

}  // namespace weir::lab
