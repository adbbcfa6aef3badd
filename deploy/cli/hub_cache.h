#pragma once

// Finds the folder of a model or tokenizer that is named as on the Hugging Face hub, among what
// `hf download` has put into the local cache. Opens no connection. Thread: main; reads files.

#include <optional>
#include <string>

#include "common/status.h"

namespace tandem {

struct HubCacheOptions {
  std::string folder;    // of the cache; empty: HubCacheFolder()
  std::string revision;  // branch, tag or commit; empty: main
};

// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
std::string HubCacheFolder();

// A folder of the cache for "org/name"; nullopt when the name is a path (of a folder that exists,
// or not of that form). NOT_FOUND: the cache does not have it, or not in that revision.
StatusOr<std::optional<std::string>> FindInHubCache(const std::string& name,
                                                    const HubCacheOptions& options);

}  // namespace tandem
