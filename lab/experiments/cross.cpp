// SPDX-License-Identifier: MIT
// lab/experiments/cross.cpp — the experiment `cross`.
#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment cross_experiment() {
  Experiment e;
  e.name = "cross";
  e.question = "What does a page cost that one CPU takes and writes, and another gives back?";
  e.source = "the flow that makes per-CPU caches run over on one side and dry on the other";
  e.expected =
      "close to floor.none where pages travel as arrays; several times that where each free "
      "writes into the page or takes a shared line";
  e.meaning =
      "The first 64 bytes are written; pages begin at multiples of 4096 except DPDK's, whose "
      "stride of 4160 spreads them over more cache sets. Two CPUs drift together with the "
      "host: compare within this run.";
  e.workload = Workload::cross;
  e.metric = {"time", "ns", "ns a page", 1, false};
  e.cases = {{"burst-64", "bursts of 64 over a ring of 1024"}};
  e.contenders = {"weir.page",    "weir.pool",
                  "weir.frag",    "weir.pool+free_order0=engine",
                  "dpdk.mempool", "dpdk.mempool-stack",
                  "mimalloc",     "jemalloc",
                  "tcmalloc",     "glibc",
                  "mutex-list",   "mutex-list+bulk",
                  "spin-list",    "spin-list+bulk",
                  "floor.none"};
  return e;
}

}  // namespace weir::lab
