// SPDX-License-Identifier: MIT
// lab/experiments/cross_cpu.cpp — the experiment `cross-cpu`.
#include <fmt/format.h>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment cross_cpu_experiment() {
  Experiment e;
  e.name = "cross-cpu";
  e.question = "What does a page cost that one CPU takes and writes, and another gives back?";
  e.source = "the flow that makes per-CPU caches run over on one side and dry on the other";
  e.expected =
      "close to floor.none where pages travel as arrays; several times that where each free "
      "writes into the page or takes a shared line";
  e.meaning =
      "N pages are taken at once and given back at once (1: by the calls for single pages), the "
      "first 64 bytes of each are written. For every N and everybody, 64 pointers travel at once "
      "(128 for N = 128) and at most 1024 are under way. The floors write the pages that "
      "weir.page handed out in the warm-up of the case, in the same order: as many different "
      "pages, reused as soon. Pages begin at multiples of 4096 except DPDK's, whose stride of 4160 "
      "spreads them over more cache sets; floor.none+coloured shows what that is worth. Two CPUs "
      "drift together with the host: compare within this run.";
  e.workload = Workload::cross_cpu;
  e.metric = {"time", "ns", "ns a page", 1, false};
  for (const std::uint32_t batch : {1U, 4U, 8U, 16U, 32U, 64U, 128U}) {
    e.cases.push_back({fmt::format("{}", batch),
                       batch == 1 ? "pages one by one" : fmt::format("{} pages at once", batch),
                       batch,
                       batch == 1 || batch == 64,
                       {}});
    if (batch != 1) {  // it is dpdk.mempool there
      e.cases.back().without.emplace_back("dpdk.mempool+bulk");
    }
  }
  e.contenders = {"weir.page",
                  "weir.ref",
                  "weir.pool",
                  "weir.frag",
                  "weir.pool+free_order0=engine",
                  "dpdk.mempool",
                  "dpdk.mempool+bulk",
                  "dpdk.mempool-stack",
                  "dpdk.mbuf",
                  "mimalloc",
                  "jemalloc",
                  "tcmalloc",
                  "glibc",
                  "mutex-list",
                  "mutex-list+bulk",
                  "spin-list",
                  "spin-list+bulk",
                  "floor.none",
                  "floor.none+coloured"};
  e.references = {"dpdk.mempool", "dpdk.mempool+bulk", "dpdk.mbuf", "floor.none",
                  "floor.none+coloured"};
  return e;
}

}  // namespace weir::lab
