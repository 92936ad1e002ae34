// SPDX-License-Identifier: MIT
// io/capture.hpp — frames of a capture file in memory, and a writer of such files. Calls libpcap,
// in the .cpp alone. Cold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weir/base/result.hpp"

struct pcap;
struct pcap_dumper;

namespace weir {

class Capture {
 public:
  using Frame = std::span<const std::byte>;

  // Reads a whole file (pcap or pcapng, Ethernet). bad_file: missing, unreadable, no capture,
  // truncated or damaged, not of Ethernet, without a frame; too_large: no memory for it. Nothing is
  // kept on failure.
  [[nodiscard]] static Result<Capture> load(const char* path);
  Capture(Capture&&) noexcept = default;
  Capture& operator=(Capture&&) noexcept = default;
  Capture(const Capture&) = delete;  // frames_ look into bytes_
  Capture& operator=(const Capture&) = delete;

  // Frames that are made, not read: for tests and benchmarks.
  [[nodiscard]] static Capture of(std::span<const Frame> frames);

  [[nodiscard]] std::size_t size() const noexcept { return frames_.size(); }
  [[nodiscard]] Frame frame(std::size_t n) const noexcept { return frames_[n]; }
  [[nodiscard]] std::span<const Frame> frames() const noexcept { return frames_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.size(); }
  // Frames that were longer on the wire than in the file.
  [[nodiscard]] std::size_t cut() const noexcept { return cut_; }

 private:
  Capture() = default;
  void add(Frame frame);
  void seal();

  std::vector<std::byte> bytes_;   // of all frames, one after the other
  std::vector<std::size_t> ends_;  // where each ends; empty once sealed
  std::vector<Frame> frames_;
  std::size_t cut_ = 0;
};

// Writes frames to a pcap file of Ethernet. One thread.
class CaptureWriter {
 public:
  // Truncates the file. bad_file when it cannot be written.
  [[nodiscard]] static Result<CaptureWriter> create(const char* path);
  CaptureWriter(CaptureWriter&&) noexcept = default;
  CaptureWriter& operator=(CaptureWriter&&) noexcept = default;
  ~CaptureWriter() = default;  // closes; to hear of a failure, call close()

  // The time of the n-th frame is n microseconds: the same frames make the same file.
  void write(Capture::Frame frame) noexcept;
  // Flushes and closes. bad_file when anything could not be written. Once; later frames are lost.
  Error close() noexcept;

 private:
  struct Closer {
    void operator()(pcap* handle) const noexcept;
    void operator()(pcap_dumper* dumper) const noexcept;
  };
  CaptureWriter() = default;

  std::unique_ptr<pcap, Closer> handle_;
  std::unique_ptr<pcap_dumper, Closer> dumper_;  // ends before handle_
  std::uint64_t frames_ = 0;
};

// "FILE: what is wrong (what the system says)": one line for a user.
[[nodiscard]] std::string capture_problem(const char* path, const Error& error);

}  // namespace weir
