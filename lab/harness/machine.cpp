// SPDX-License-Identifier: MIT
// lab/harness/machine.cpp — what the figures were taken on.
#include "lab/harness/machine.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>

#include "lab/harness/build_info.hpp"

namespace weir::lab {

MachineCard machine_card(const SystemInfo& system) {
  const BuildInfo& build = build_info();
  MachineCard card;
  card.cpu = system.cpu_model;
  card.cpus = system.cpus_allowed;
  card.kernel = system.kernel_release;
  card.compiler = build.compiler;
  card.build = build.build;
  card.commit = build.commit;
  return card;
}

std::string cpus_text(CpuPair cpus) {
  return cpus.shared() ? fmt::format("{} alone: both threads take turns", cpus.lead)
                       : fmt::format("{} and {}", cpus.lead, cpus.follow);
}

std::string equal_page_size() {
  if (::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0) {
    return "4 KiB for all (transparent huge pages are off in this process)";
  }
  return fmt::format("as the system gives them ({})", std::strerror(errno));
}

}  // namespace weir::lab
