// SPDX-License-Identifier: MIT
#include "weir/os/id_set.hpp"

#include "weir/os/text_file.hpp"

namespace weir {

std::optional<IdSet> IdSet::parse(std::string_view list) noexcept {
  IdSet set;
  while (!list.empty()) {
    const auto first = take_number(list);
    auto last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = take_number(list);
    }
    if (!first || !last || *first > *last || *last >= kLimit) {
      return std::nullopt;
    }
    for (std::uint64_t id = *first; id <= *last; ++id) {
      set.insert(static_cast<std::uint32_t>(id));
    }
    if (list.empty()) {
      break;
    }
    if (!list.starts_with(',') || list.size() == 1) {
      return std::nullopt;
    }
    list.remove_prefix(1);
  }
  return set;
}

}  // namespace weir
