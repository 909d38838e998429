// What kernels execute and access, as HALFMARK_SOFTWARE_GPU_WORK has it.
#include "kernels/cuda/software_gpu/work_counts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

class WorkOfKernels : public SoftwareGpu {
 protected:
  void SetUp() override {
    SoftwareGpu::SetUp();
    file_ = testing::TempDir() + "halfmark_work_XXXXXX";
    const int descriptor = ::mkstemp(file_.data());
    ASSERT_GE(descriptor, 0) << file_;
    ::close(descriptor);
    write_work_to(file_);
  }
  void TearDown() override {
    write_work_to("");
    ::unlink(file_.c_str());
    SoftwareGpu::TearDown();
  }

  // The numbers behind the name, of each launch.
  std::vector<std::vector<uint64_t>> launches() const {
    std::vector<std::vector<uint64_t>> all;
    std::ifstream file(file_);
    for (std::string line; std::getline(file, line);) {
      std::istringstream cells(line);
      std::string cell;
      std::getline(cells, cell, ',');
      EXPECT_EQ(cell, "k");
      all.emplace_back();
      while (std::getline(cells, cell, ',')) all.back().push_back(std::stoull(cell));
    }
    return all;
  }
  // The numbers of one launch of blocks of 64 threads.
  std::vector<uint64_t> work_of(const std::string& body, unsigned blocks = 1) {
    const size_t before = launches().size();
    const std::vector<uint32_t> zeros(4096, 0);
    const uint32_t *in = on_device(zeros), *out = on_device(zeros);
    EXPECT_EQ(run_kernel(module_of_body(body), out, in, 0, dim3(blocks), dim3(64)).status(), cudaSuccess);
    const auto all = launches();
    EXPECT_EQ(all.size(), before + 1);
    return all.back();
  }
  using Numbers = std::vector<uint64_t>;
  // Bytes, sectors of accesses, sectors at all.
  static Numbers reads(const Numbers& work) { return {work.begin() + 3, work.begin() + 6}; }
  static Numbers writes(const Numbers& work) { return {work.begin() + 6, work.begin() + 9}; }

 private:
  std::string file_;
};

// %rd3 and %rd4: of the thread, so many bytes apart, in `in` and in `out`.
std::string with_addresses(int apart, const std::string& body) {
  return "mul.wide.u32 %rd2, %r1, " + std::to_string(apart) +
         ";\nadd.s64 %rd3, %rd1, %rd2;\nadd.s64 %rd4, %rd0, %rd2;\n" + body;
}

TEST_F(WorkOfKernels, NeighboursShareTheSectorsOfAWarp) {
  const Numbers work = work_of(with_addresses(4, "ld.global.u32 %r20, [%rd3];\nst.global.u32 [%rd4], %r20;"), 2);
  EXPECT_EQ(Numbers(work.begin(), work.begin() + 2), (Numbers{2, 64})) << "blocks and threads";
  EXPECT_EQ(reads(work), (Numbers{512, 16, 16}));
  EXPECT_EQ(writes(work), (Numbers{512, 16, 16}));
}

TEST_F(WorkOfKernels, ThreadsThatAreFarApartTouchASectorEach) {
  EXPECT_EQ(reads(work_of(with_addresses(64, "ld.global.u32 %r20, [%rd3];"))), (Numbers{256, 64, 64}));
  // Accesses of 16 bytes to every second half of a sector: each takes a whole sector.
  EXPECT_EQ(reads(work_of(with_addresses(32, "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];"))),
            (Numbers{1024, 64, 64}));
  EXPECT_EQ(reads(work_of(with_addresses(16, "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];"))),
            (Numbers{1024, 32, 32}));
}

TEST_F(WorkOfKernels, ASectorCountsOnceForEachAccessOfAWarpAndOnceAtAll) {
  EXPECT_EQ(reads(work_of(with_addresses(0, "ld.global.u32 %r20, [%rd3];"))), (Numbers{256, 2, 1}));
  EXPECT_EQ(reads(work_of(with_addresses(4, "ld.global.u32 %r20, [%rd3];\nld.global.u32 %r21, [%rd3];"))),
            (Numbers{512, 16, 8}));
  EXPECT_EQ(writes(work_of(with_addresses(4, "red.global.add.u32 [%rd4], 1;"))), (Numbers{256, 8, 8}))
      << "an atomic operation";
}

TEST_F(WorkOfKernels, LanesThatAreOffAccessNothing) {
  EXPECT_EQ(reads(work_of(with_addresses(4, "setp.lt.u32 %p1, %r4, 8;\n@%p1 ld.global.u32 %r20, [%rd3];"))),
            (Numbers{32, 1, 1}));
}

TEST_F(WorkOfKernels, CountsEachInstructionOfEachWarp) {
  const auto instructions = [&](const std::string& body) { return work_of(body)[2]; };
  const uint64_t none = instructions("");
  EXPECT_EQ(instructions("add.u32 %r20, %r1, 1;"), none + 2) << "one instruction, two warps";
  // Eight times two instructions and the branch, in the first warp only. The second branches to the return and ends.
  EXPECT_EQ(instructions("setp.ge.u32 %p1, %r4, 32;\n@%p1 bra END;\nmov.u32 %r20, 0;\nAGAIN:\nadd.u32 %r20, %r20, 1;\n"
                         "setp.lt.u32 %p2, %r20, 8;\n@%p2 bra AGAIN;\nEND:\n"),
            none + 2 * 2 + 1 + 8 * 3 - 1);
}

TEST_F(WorkOfKernels, IsNotWrittenUnlessItIsAskedFor) {
  write_work_to("");
  const uint32_t* memory = on_device(std::vector<uint32_t>(64, 0));
  EXPECT_EQ(run_kernel(module_of_body(""), memory, memory, 0, dim3(1), dim3(64)).status(), cudaSuccess);
  EXPECT_TRUE(launches().empty());
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
