#include "kernels/cuda/libraries/shared_library.h"

#include <dlfcn.h>

namespace tandem {

StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return UnavailableError(dlerror());
  return SharedLibrary(file, handle);
}

StatusOr<void*> SharedLibrary::AddressOf(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr) {
    return UnavailableError(file_ + " has no " + name + ": it is too old, or another library");
  }
  return address;
}

}  // namespace tandem
