#include "engine_core/executor/cgroup_memory.h"

#include <limits>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

TEST_CASE("cgroup memory: without cgroups nothing is limited") {
  const TempFolder root;  // for files like those of /proc and /sys
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == kNone);
  CHECK(ReadCgroupMemory(root.path()).available_bytes == kNone);
}

TEST_CASE("cgroup memory: version 2, the tightest of the own cgroup and those above") {
  const TempFolder root;
  root.Write("/proc/self/cgroup", "0::/system.slice/tandem.service\n");
  root.Write("/sys/fs/cgroup/system.slice/tandem.service/memory.max", "5000\n");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 5000);
  root.Write("/sys/fs/cgroup/system.slice/memory.max", "3000\n");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 3000);
  root.Write("/sys/fs/cgroup/system.slice/memory.max", "max\n");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 5000);
  root.Write("/sys/fs/cgroup/memory.max", "4000\n");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 4000);
  // A neighbour's limit is not ours.
  root.Write("/sys/fs/cgroup/user.slice/memory.max", "10\n");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 4000);
}

TEST_CASE("cgroup memory: memory in use counts without the page cache") {
  const TempFolder root;
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/sys/fs/cgroup/a/b/memory.max", "5000");
  CHECK(ReadCgroupMemory(root.path()).available_bytes == 5000);
  root.Write("/sys/fs/cgroup/a/b/memory.current", "3000");
  CHECK(ReadCgroupMemory(root.path()).available_bytes == 2000);
  root.Write("/sys/fs/cgroup/a/b/memory.stat",
             "anon 1900\ninactive_file 600\nactive_file 400\nslab 100\n");
  CHECK(ReadCgroupMemory(root.path()).available_bytes == 3000);
  // The group above has a higher limit, but others have used it up.
  root.Write("/sys/fs/cgroup/a/memory.max", "9000");
  root.Write("/sys/fs/cgroup/a/memory.current", "8500");
  CHECK(ReadCgroupMemory(root.path()).available_bytes == 500);
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 5000);
  root.Write("/sys/fs/cgroup/a/memory.current", "9500");
  CHECK(ReadCgroupMemory(root.path()).available_bytes == 0);
}

TEST_CASE("cgroup memory: version 1, with controllers that share a mount") {
  const TempFolder root;
  root.Write("/proc/self/cgroup",
             "12:cpuset:/other\n9:cpu,memory:/docker/abc\n1:name=systemd:/x\n0::/docker/abc\n");
  root.Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "7000");
  root.Write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "2000");
  root.Write("/sys/fs/cgroup/memory/docker/abc/memory.stat",
             "active_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  const CgroupMemory memory = ReadCgroupMemory(root.path());
  CHECK(memory.limit_bytes == 7000);
  CHECK(memory.available_bytes == 5500);
  root.Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == kNone);  // that number is no limit
}

TEST_CASE("cgroup memory: in a container the mount itself is the own cgroup") {
  const TempFolder root;
  root.Write("/sys/fs/cgroup/memory.max", "6000");
  for (const char* path : {"/", "/kubepods/of/the/host", "/../../elsewhere"}) {
    root.Write("/proc/self/cgroup", std::string("0::") + path + "\n");
    CAPTURE(path);
    CHECK(ReadCgroupMemory(root.path()).limit_bytes == 6000);
  }
}

TEST_CASE("cgroup memory: lines of another form are skipped") {
  const TempFolder root;
  root.Write("/proc/self/cgroup", "\nnonsense\n0:\n0::\n0::relative\n::/\n");
  root.Write("/sys/fs/cgroup/memory.max", "6000");
  CHECK(ReadCgroupMemory(root.path()).limit_bytes == 6000);  // "::/" is version 2's root
}

}  // namespace
}  // namespace tandem
