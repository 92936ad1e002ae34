// SPDX-License-Identifier: MIT
// Frames made by hand, and files that come and go with a test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "weir/packet/checksum.hpp"
#include "weir/packet/eth.hpp"

namespace weir::test {

using Frame = std::vector<std::byte>;

inline Frame bytes_of(std::initializer_list<int> values) {
  Frame bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

inline Frame operator+(Frame a, const Frame& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Frame macs() { return bytes_of({2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}); }

// An IPv4 header with this time to live and a right checksum, then a payload.
inline Frame ipv4(int ttl, std::size_t payload = 26) {
  Frame packet =
      bytes_of({0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, ttl, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
  store_be16(&packet[2], static_cast<std::uint16_t>(20 + payload));
  store_be16(&packet[10], checksum(packet));
  for (std::size_t i = 0; i < payload; ++i) {
    packet.push_back(static_cast<std::byte>(i));
  }
  return packet;
}
inline Frame ipv6(int hop_limit) {
  return bytes_of({0x60, 0, 0, 0, 0, 8, 59, hop_limit}) + Frame(32, std::byte{0xfd}) +
         Frame(8, std::byte{1});
}

inline Frame ipv4_frame(int ttl, std::size_t payload = 26) {
  return macs() + bytes_of({0x08, 0x00}) + ipv4(ttl, payload);
}
inline Frame ipv6_frame(int hop_limit) { return macs() + bytes_of({0x86, 0xdd}) + ipv6(hop_limit); }
inline Frame arp_frame() {
  return macs() + bytes_of({0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1}) + Frame(38, std::byte{3});
}

// A path of its own; the file, if the test made one, is removed at the end.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    std::string name = std::string{folder != nullptr ? folder : "/tmp"} + "/weir-test-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd >= 0) {
      ::close(fd);
    }
    path_ = name;
  }
  explicit TemporaryFile(const std::string& content) : TemporaryFile() { write(content); }
  ~TemporaryFile() { static_cast<void>(::unlink(path_.c_str())); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const std::string& content) const {
    std::ofstream file{path_, std::ios::binary | std::ios::trunc};
    file << content;
  }
  [[nodiscard]] std::string read() const {
    std::ifstream file{path_, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  [[nodiscard]] const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

}  // namespace weir::test
