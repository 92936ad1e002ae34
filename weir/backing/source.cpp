// SPDX-License-Identifier: MIT
#include "weir/backing/source.hpp"

#include "weir/base/bits.hpp"
#include "weir/base/config.hpp"
#include "weir/base/report.hpp"

namespace weir {

Result<Bytes> rounded_request(Bytes size, Bytes page) noexcept {
  if (size.value == 0) return {Errc::zero_size, "size of an extent"};
  if (size > kMaxExtent) return {Errc::too_large, "size of an extent"};
  return Bytes{align_up(size.value, page.value)};
}

Error check_part(const Extent& extent, Bytes offset, Bytes size) noexcept {
  if (size.value == 0) return {Errc::zero_size, "a part of an extent"};
  if (offset > extent.size || size > extent.size - offset) {
    return {Errc::too_large, "a part of an extent"};
  }
  if (!is_aligned(offset.value | size.value, extent.page_size.value)) {
    return {Errc::misaligned, "a part of an extent"};
  }
  return kOk;
}

void advise_transparent_huge(Memory& memory, ThpChoice thp, Extent& extent) {
  if (thp == ThpChoice::system) {
    return;
  }
  const bool on = thp == ThpChoice::on;
  const Error error = memory.advise_huge(extent.base, extent.size, on);
  if (!error.failed()) {
    extent.transparent_huge = on;
    return;
  }
  static bool told_on = false;
  static bool told_off = false;
  extent.note = on ? "no transparent huge pages to be had: pages are 4 KiB"
                   : "transparent huge pages could not be forbidden";
  notice_once(on ? told_on : told_off, extent.note);
}

void bind_to_node(Memory& memory, NodeId node, Extent& extent) {
  if (node == kAnyNode) {
    return;
  }
  const Error error = memory.bind(extent.base, extent.size, node, false);
  if (!error.failed()) {
    extent.node = node;
    return;
  }
  static bool told_denied = false;
  static bool told_other = false;
  const bool denied = error.code == Errc::denied;
  extent.node_note = denied ? "the system forbids to bind memory to a node: it comes from any"
                            : "no memory to be had of this node: it comes from any";
  notice_once(denied ? told_denied : told_other, extent.node_note);
}

}  // namespace weir
