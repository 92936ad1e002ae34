// SPDX-License-Identifier: MIT
// lab/experiments/forward.cpp — the experiment `forward`: the whole way of a packet.
#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment forward_experiment() {
  Experiment e;
  e.name = "forward";
  e.question =
      "How many packets a second does one receiving CPU forward, when another one "
      "completes the transmissions and gives the buffers back?";
  e.source =
      "the transmit completion of a software router, where a profile showed 16 % of the "
      "cycles in freeing and 10 % spinning on the zone lock";
  e.expected =
      "array-passing allocators (weir.pool, dpdk.mempool) stay close to floor.none; those "
      "that touch a shared line per buffer fall behind by its cost";
  e.meaning =
      "A capture is replayed from memory: receive copies the frame, forwarding rewrites MAC "
      "addresses, time to live and checksum, a ring carries it to the other CPU, which "
      "touches and frees it. Only allocation and free differ between contenders. No network "
      "card takes part, so the figure is what memory management leaves possible, not a line "
      "rate.";
  e.workload = Workload::forward;
  e.metric = {"rate", "packets/s", "Mpackets/s", 1e-6, true};
  e.cases = {{"mix", "the capture of the repository: real traffic, frames of 60 to 1514 bytes"}};
  e.contenders = {"weir.pool",    "weir.page",
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
