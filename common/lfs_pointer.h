#pragma once

// A repository that is cloned without git-lfs has small texts in the place of its large files.
// Pure; any thread.

#include <string_view>

namespace tandem {

constexpr bool IsLfsPointer(std::string_view begin_of_file) {
  return begin_of_file.starts_with("version https://git-lfs.github.com/spec/");
}

// What follows a file's name in a message.
inline constexpr char kLfsPointerProblem[] =
    "is a Git LFS pointer, not the file itself: `git lfs pull` fetches that, as does `tandem pull`";

}  // namespace tandem
