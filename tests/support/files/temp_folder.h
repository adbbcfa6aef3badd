#pragma once

// A fresh folder below the system's temporary folder, removed with all that is in it.
// Thread: the test's own. Failure: a folder that cannot be made ends the test program.

#include <string>
#include <string_view>

namespace tandem {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const;                  // of a file in it
  void Write(std::string_view name, std::string_view bytes) const;  // makes folders on the way
  std::string Read(std::string_view name) const;                    // empty where there is none

 private:
  std::string path_;
};

}  // namespace tandem
