#include "common/program_start.h"

#include <cstdio>

#include "common/stack_size.h"
#include "common/standard_files.h"

namespace tandem {

bool StartProgram(const char* name) {
  OpenStandardFiles();
  const Status status = EnsureStackSize();
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", name, status.message().c_str());
  return status.ok();
}

}  // namespace tandem
