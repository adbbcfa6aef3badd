#pragma once

// A library opened at run time, and its functions by name: the program starts on hosts without it.
// Thread: any; a value. The library is never closed: CUDA's libraries leave threads and exit
// handlers running.
// Failure: Unavailable with the loader's message, or with the first name that the library lacks.

#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {

class SharedLibrary {
 public:
  // `file`: a path, or a name that the loader looks for (LD_LIBRARY_PATH, ld.so.cache).
  static StatusOr<SharedLibrary> Open(const std::string& file);

  // REQUIRES Function to be what the library declares; no one can check that.
  template <class Function>
  Status Find(const char* name, Function** function) const {
    ASSIGN_OR_RETURN(void* address, AddressOf(name));
    *function = reinterpret_cast<Function*>(address);
    return OkStatus();
  }

 private:
  SharedLibrary(std::string file, void* handle) : file_(std::move(file)), handle_(handle) {}
  StatusOr<void*> AddressOf(const char* name) const;

  std::string file_;
  void* handle_;
};

}  // namespace tandem
