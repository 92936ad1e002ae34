// SPDX-License-Identifier: MIT
#include "weir/io/capture.hpp"

#include <pcap/pcap.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>

namespace weir {
namespace {

constexpr int kSnapLength = 262144;  // the most libpcap itself accepts

struct FileCloser {
  void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
  void operator()(pcap_t* handle) const noexcept { pcap_close(handle); }
};

Error open_error(int error) noexcept {
  switch (error) {
    case ENOENT:
      return {Errc::bad_file, "the capture file does not exist", error};
    case EACCES:
      return {Errc::bad_file, "the capture file may not be read", error};
    default:
      return {Errc::bad_file, "the capture file cannot be opened", error};
  }
}

}  // namespace

void Capture::add(Frame frame) {
  bytes_.insert(bytes_.end(), frame.begin(), frame.end());
  ends_.push_back(bytes_.size());
}

// Frames are views of bytes_, which must not move any more.
void Capture::seal() {
  frames_.reserve(ends_.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    frames_.push_back(Frame(bytes_).subspan(begin, end - begin));
    begin = end;
  }
  ends_ = {};
}

Result<Capture> Capture::load(const char* path) {
  std::unique_ptr<std::FILE, FileCloser> file{std::fopen(path, "rbe")};
  if (file == nullptr) {
    return open_error(errno);
  }
  // Of the file's own kind of failure libpcap keeps only a sentence.
  const int first = std::getc(file.get());
  if (first == EOF) {
    return std::ferror(file.get()) != 0
               ? Error{Errc::bad_file, "the capture file cannot be read", errno}
               : Error{Errc::bad_file, "the capture file is empty", 0};
  }
  static_cast<void>(std::ungetc(first, file.get()));

  char reason[PCAP_ERRBUF_SIZE] = "";
  std::unique_ptr<pcap_t, FileCloser> handle{pcap_fopen_offline(file.get(), reason)};
  if (handle == nullptr) {
    return Error{Errc::bad_file, "not a capture file, or a truncated or damaged one", 0};
  }
  static_cast<void>(file.release());  // the handle's
  if (pcap_datalink(handle.get()) != DLT_EN10MB) {
    return Error{Errc::bad_file, "the capture is not of Ethernet", 0};
  }
  try {
    Capture capture;
    pcap_pkthdr* header = nullptr;
    const u_char* bytes = nullptr;
    int status = 0;
    while ((status = pcap_next_ex(handle.get(), &header, &bytes)) == 1) {
      capture.add(Frame(reinterpret_cast<const std::byte*>(bytes), header->caplen));
      capture.cut_ += header->caplen < header->len ? 1 : 0;
    }
    if (status != PCAP_ERROR_BREAK) {
      return Error{Errc::bad_file, "the capture is truncated or damaged", 0};
    }
    if (capture.ends_.empty()) {
      return Error{Errc::bad_file, "the capture holds no frame", 0};
    }
    capture.seal();
    return capture;
  } catch (const std::bad_alloc&) {
    return Error{Errc::too_large, "the capture does not fit into memory", 0};
  }
}

Capture Capture::of(std::span<const Frame> frames) {
  Capture capture;
  for (const Frame& frame : frames) {
    capture.add(frame);
  }
  capture.seal();
  return capture;
}

void CaptureWriter::Closer::operator()(pcap* handle) const noexcept { pcap_close(handle); }
void CaptureWriter::Closer::operator()(pcap_dumper* dumper) const noexcept {
  pcap_dump_close(dumper);
}

Result<CaptureWriter> CaptureWriter::create(const char* path) {
  CaptureWriter writer;
  writer.handle_.reset(pcap_open_dead(DLT_EN10MB, kSnapLength));
  if (writer.handle_ == nullptr) {
    return Error{Errc::system, "no memory for writing a capture", ENOMEM};
  }
  errno = 0;
  writer.dumper_.reset(pcap_dump_open(writer.handle_.get(), path));
  if (writer.dumper_ == nullptr) {
    return Error{Errc::bad_file, "the capture file cannot be written", errno};
  }
  return writer;
}

void CaptureWriter::write(Capture::Frame frame) noexcept {
  if (dumper_ == nullptr) {
    return;
  }
  constexpr std::uint64_t kMicroseconds = 1'000'000;
  pcap_pkthdr header{};
  header.ts.tv_sec = static_cast<decltype(header.ts.tv_sec)>(frames_ / kMicroseconds);
  header.ts.tv_usec = static_cast<decltype(header.ts.tv_usec)>(frames_ % kMicroseconds);
  header.caplen = header.len = static_cast<bpf_u_int32>(frame.size());
  pcap_dump(reinterpret_cast<u_char*>(dumper_.get()), &header,
            reinterpret_cast<const u_char*>(frame.data()));
  ++frames_;
}

Error CaptureWriter::close() noexcept {
  if (dumper_ == nullptr) {
    return {Errc::closed, "the capture file is closed already", 0};
  }
  errno = 0;
  const bool failed =
      pcap_dump_flush(dumper_.get()) != 0 || std::ferror(pcap_dump_file(dumper_.get())) != 0;
  const int error = errno;
  dumper_.reset();
  handle_.reset();
  return failed ? Error{Errc::bad_file, "the capture file could not be written whole", error} : kOk;
}

std::string capture_problem(const char* path, const Error& error) {
  std::string line = std::string{path} + ": " + error.what;
  if (error.os_errno != 0) {
    char text[128];
    // The GNU form, which may answer with a string of its own.
    line += std::string{" ("} + strerror_r(error.os_errno, text, sizeof text) + ")";
  }
  return line;
}

}  // namespace weir
