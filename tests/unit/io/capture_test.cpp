// SPDX-License-Identifier: MIT
#include "weir/io/capture.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "tests/support/process.hpp"
#include "tests/unit/io/frames.hpp"

namespace weir {
namespace {

using test::TemporaryFile;

// A pcap file of three frames, written by our own writer.
std::string three_frames() {
  const TemporaryFile file;
  Result<CaptureWriter> writer = CaptureWriter::create(file.path());
  EXPECT_TRUE(writer);
  writer->write(test::ipv4_frame(64));
  writer->write(test::arp_frame());
  writer->write(test::ipv6_frame(9));
  EXPECT_FALSE(writer->close().failed());
  return file.read();
}

void expect_refused(const char* path, std::string_view what) {
  const Result<Capture> capture = Capture::load(path);
  ASSERT_FALSE(capture) << what;
  EXPECT_EQ(capture.error().code, Errc::bad_file);
  const std::string line = capture_problem(path, capture.error());
  EXPECT_NE(line.find(what), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  EXPECT_EQ(line.rfind(path, 0), 0U) << line;
}

TEST(Capture, ReadsBackWhatWasWritten) {
  const TemporaryFile file{three_frames()};
  const Result<Capture> capture = Capture::load(file.path());
  ASSERT_TRUE(capture);
  ASSERT_EQ(capture.value().size(), 3U);
  EXPECT_TRUE(std::ranges::equal(capture.value().frame(0), test::ipv4_frame(64)));
  EXPECT_TRUE(std::ranges::equal(capture.value().frame(1), test::arp_frame()));
  EXPECT_TRUE(std::ranges::equal(capture.value().frame(2), test::ipv6_frame(9)));
  EXPECT_EQ(capture.value().bytes(),
            test::ipv4_frame(64).size() + test::arp_frame().size() + test::ipv6_frame(9).size());
  EXPECT_EQ(capture.value().cut(), 0U);
}

TEST(Capture, TheSameFramesMakeTheSameFile) { EXPECT_EQ(three_frames(), three_frames()); }

TEST(Capture, SurvivesBeingMoved) {
  const std::vector<std::byte> frame = test::ipv4_frame(3);
  const Capture::Frame view{frame};
  Capture first = Capture::of(std::span(&view, 1));
  const Capture second{std::move(first)};
  ASSERT_EQ(second.size(), 1U);
  EXPECT_TRUE(std::ranges::equal(second.frame(0), frame));
  EXPECT_NE(second.frame(0).data(), frame.data());
}

TEST(Capture, RefusesAMissingFile) {
  expect_refused("/nonexistent/weir.pcap",
                 "the capture file does not exist (No such file or directory)");
}

TEST(Capture, RefusesAFileThatMayNotBeRead) {
  const TemporaryFile file{three_frames()};
  ASSERT_EQ(chmod(file.path(), 0), 0);
  // Root may read everything, so somebody else tries.
  const int status = test::run_in_child([&] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) {
      return 1;
    }
    const Result<Capture> capture = Capture::load(file.path());
    if (capture || capture.error().code != Errc::bad_file || capture.error().os_errno != EACCES) {
      return 2;
    }
    const std::string line = capture_problem(file.path(), capture.error());
    return line.find("the capture file may not be read (Permission denied)") == std::string::npos
               ? 3
               : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(Capture, RefusesAFolder) { expect_refused("/tmp", "the capture file cannot be read"); }

TEST(Capture, RefusesAnEmptyFileAndOneWithoutFrames) {
  const TemporaryFile file{""};
  expect_refused(file.path(), "the capture file is empty");
  file.write(three_frames().substr(0, 24));
  expect_refused(file.path(), "the capture holds no frame");
}

TEST(Capture, RefusesWhatIsNoCapture) {
  const TemporaryFile file{"This is a text, and quite a long one, so that no header fits it."};
  expect_refused(file.path(), "not a capture file");
}

TEST(Capture, RefusesFramesThatAreNotEthernet) {
  std::string content = three_frames();
  content[20] = 101;  // raw IP
  const TemporaryFile file{content};
  expect_refused(file.path(), "not of Ethernet");
}

TEST(Capture, RefusesEveryTruncation) {
  const std::string whole = three_frames();
  std::vector<std::size_t> ends{24};  // where the file may end: after its header and each frame
  for (const std::size_t size :
       {test::ipv4_frame(64).size(), test::arp_frame().size(), test::ipv6_frame(9).size()}) {
    ends.push_back(ends.back() + 16 + size);
  }
  ASSERT_EQ(ends.back(), whole.size());
  const std::size_t files = test::file_count();
  const TemporaryFile file;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    file.write(whole.substr(0, size));
    const Result<Capture> capture = Capture::load(file.path());
    const auto end = std::find(ends.begin(), ends.end(), size);
    const bool good = end != ends.end() && end != ends.begin();
    ASSERT_EQ(capture.ok(), good) << size;
    if (good) {
      EXPECT_EQ(static_cast<std::ptrdiff_t>(capture.value().size()), end - ends.begin());
    } else {
      EXPECT_EQ(capture.error().code, Errc::bad_file);
    }
  }
  EXPECT_EQ(test::file_count(), files);
}

TEST(Capture, RefusesADamagedLength) {
  std::string content = three_frames();
  content[24 + 8 + 3] = 0x7f;  // length of the first frame
  const TemporaryFile file{content};
  expect_refused(file.path(), "truncated or damaged");
}

TEST(Capture, CountsFramesThatWereCutWhenTheyWereRecorded) {
  std::string content = three_frames();
  content[24 + 12] = static_cast<char>(content[24 + 12] + 1);  // one byte more on the wire
  const TemporaryFile file{content};
  const Result<Capture> capture = Capture::load(file.path());
  ASSERT_TRUE(capture);
  EXPECT_EQ(capture.value().cut(), 1U);
}

TEST(CaptureWriter, SaysWhenItCannotWrite) {
  const Result<CaptureWriter> nowhere = CaptureWriter::create("/nonexistent/out.pcap");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Errc::bad_file);
  EXPECT_EQ(nowhere.error().os_errno, ENOENT);

  Result<CaptureWriter> full = CaptureWriter::create("/dev/full");
  if (full) {  // else the header could not be written, which is as well
    for (int i = 0; i < 1000; ++i) {
      full->write(test::ipv4_frame(64, 1400));
    }
    EXPECT_EQ(full->close().code, Errc::bad_file);
  }
}

TEST(CaptureWriter, ClosesOnce) {
  const TemporaryFile file;
  Result<CaptureWriter> writer = CaptureWriter::create(file.path());
  ASSERT_TRUE(writer);
  writer->write(test::arp_frame());
  EXPECT_FALSE(writer->close().failed());
  EXPECT_EQ(writer->close().code, Errc::closed);
  writer->write(test::arp_frame());  // lost, and harmless
  const Result<Capture> capture = Capture::load(file.path());
  ASSERT_TRUE(capture);
  EXPECT_EQ(capture.value().size(), 1U);
}

TEST(CaptureWriter, ClosesByItself) {
  const std::size_t files = test::file_count();
  const TemporaryFile file;
  {
    Result<CaptureWriter> writer = CaptureWriter::create(file.path());
    ASSERT_TRUE(writer);
    writer->write(test::arp_frame());
  }
  EXPECT_EQ(test::file_count(), files);
  EXPECT_TRUE(Capture::load(file.path()));
}

}  // namespace
}  // namespace weir
