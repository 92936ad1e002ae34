// SPDX-License-Identifier: MIT
#include "weir/os/thread_mark.hpp"

namespace weir {

constinit thread_local volatile std::uint32_t t_marked_sections = 0;

}  // namespace weir
