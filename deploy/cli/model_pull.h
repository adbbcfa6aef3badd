#pragma once

// Downloads a model that a command names and the cache lacks, in a process of its own (tandem-hub).
// Thread: main; blocks until it is there. Its progress goes to stderr.

#include <functional>
#include <string>

#include "common/status.h"

namespace tandem {

struct ModelPull {
  std::string name;      // as in hub_name.h
  std::string revision;  // of a flag; may be empty
  std::string cache;     // folder; may be empty
  bool with_weights = true;
};

// FAILED_PRECONDITION: it could not be downloaded; the reason is on stderr.
Status PullModelByName(const ModelPull& pull);

using ModelPuller = std::function<Status(const ModelPull&)>;

}  // namespace tandem
