// SPDX-License-Identifier: MIT
// lab/experiments/engines.cpp — the experiment `engines`.
#include "lab/experiments/engines.hpp"

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

Experiment engines_experiment() {
  Experiment e;
  e.name = "engines";
  e.question = "What does a frame cost in the engine of a zone, below all lists?";
  e.source =
      "the benchmarks of LLFree (bulk, random, repeat), with clusters of 64 as weir's lists move "
      "them";
  e.expected =
      "three compare-and-swaps a call where the engine has no lock, whether it moves one frame or "
      "64 "
      "that lie together; frames from all over cost one each and a cache miss; a lock and its "
      "lists "
      "cost by the frame";
  e.meaning =
      "One CPU, frame numbers without memory, nothing in the way of the caches but descriptors. "
      "cluster, "
      "single and order9 are pairs, by the frame or by the block; scattered is the way back alone, "
      "of "
      "64 frames from all over a zone that is nearly empty of free ones. floor.cmpxchg is the same "
      "in "
      "all of them.";
  e.workload = Workload::engines;
  e.metric = {"time", "ns", "ns", 1, false};
  e.cases = {
      {"single", "one frame taken and given back"},
      {"cluster", "64 frames taken and given back, by the frame"},
      {"scattered", "64 frames from all over 256 MiB given back, by the frame"},
      {"scattered-16g", "the same in 16 GiB", 64, false, {}},
      {"order9", "a pageblock taken and given back"},
  };
  e.contenders = {"weir.bitmap", "weir.buddy", "floor.cmpxchg"};
  e.references = {"weir.buddy", "floor.cmpxchg"};
  return e;
}

}  // namespace weir::lab
