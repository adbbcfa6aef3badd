#pragma once

// A folder of mode 0700 for the sockets of one server, in the runtime folder. It goes with its
// object; what a process that was killed has left there is removed by the next one of the same user
// that makes a folder. A file in it is locked as long as its owner lives, so a folder in use, or
// one of another program, is never removed. Thread: any.

#include <string>
#include <string_view>

#include "common/runtime_folder.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// The names of what servers make in the runtime folder begin with it.
inline constexpr std::string_view kRuntimeFolderPrefix = "tandem-";

class RuntimeDirectory {
 public:
  static StatusOr<RuntimeDirectory> Make(const std::string& parent = RuntimeFolder());
  RuntimeDirectory(RuntimeDirectory&& other) noexcept;
  RuntimeDirectory& operator=(RuntimeDirectory&&) = delete;
  ~RuntimeDirectory() { Remove(); }

  const std::string& path() const { return path_; }
  // Also for a process that ends without destructors. A second time does nothing.
  void Remove();

 private:
  RuntimeDirectory(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  UniqueFd lock_;
};

}  // namespace tandem
