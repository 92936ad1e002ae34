// SPDX-License-Identifier: MIT
// support/fake_root.hpp — a temporary folder that stands for "/" in readers of /proc and /sys.
// Removed with everything in it at the end of its life.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace weir::test {

class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "weir-root-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("no temporary folder");
    }
    path_ = name;
  }
  ~FakeRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  // Writes a file, its folders too: write("/sys/devices/system/cpu/possible", "0-3\n").
  void write(const std::string& file, const std::string& text) const {
    const std::string full = path_ + file;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << text;
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + name; }
  [[nodiscard]] const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

}  // namespace weir::test
