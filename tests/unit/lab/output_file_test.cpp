// SPDX-License-Identifier: MIT
#include "lab/harness/output_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace weir::lab {
namespace {

namespace fs = std::filesystem;

struct OutputFileTest : testing::Test {
  fs::path folder;
  OutputFileTest() {
    std::string name = (fs::temp_directory_path() / "weir-output-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder); }

  static std::string content(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(OutputFileTest, WritesWhatItIsGiven) {
  OutputFile file;
  ASSERT_EQ(file.open((folder / "new").string()), "");
  EXPECT_TRUE(file.is_open());
  EXPECT_EQ(file.write("hello"), "");
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(content(folder / "new"), "hello");
}

TEST_F(OutputFileTest, ReplacesALongerFile) {
  std::ofstream(folder / "old") << "much longer than before";
  OutputFile file;
  ASSERT_EQ(file.open((folder / "old").string()), "");
  EXPECT_EQ(file.write("short"), "");
  EXPECT_EQ(content(folder / "old"), "short");
}

TEST_F(OutputFileTest, LeavesAnExistingFileAloneUntilThereIsSomethingToWrite) {
  std::ofstream(folder / "old") << "precious";
  {
    OutputFile file;
    ASSERT_EQ(file.open((folder / "old").string()), "");
  }
  EXPECT_EQ(content(folder / "old"), "precious");
}

TEST_F(OutputFileTest, LeavesNoEmptyFileBehind) {
  {
    OutputFile file;
    ASSERT_EQ(file.open((folder / "new").string()), "");
  }
  EXPECT_FALSE(fs::exists(folder / "new"));
}

TEST_F(OutputFileTest, ADirectoryOrAMissingOneIsRefusedWithItsName) {
  OutputFile file;
  EXPECT_NE(file.open(folder.string()).find(folder.string()), std::string::npos);
  OutputFile other;
  EXPECT_NE(other.open((folder / "no" / "file").string()).find("cannot write"), std::string::npos);
}

TEST_F(OutputFileTest, AFullDeviceIsAnErrorOfTheWrite) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full";
  }
  OutputFile file;
  ASSERT_EQ(file.open("/dev/full"), "");
  EXPECT_NE(file.write("x").find("/dev/full"), std::string::npos);
}

}  // namespace
}  // namespace weir::lab
