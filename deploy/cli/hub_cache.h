#pragma once

// Finds a model or tokenizer that is named as on a hub among what `tandem pull`, `hf download` and
// other programs have put into the local cache. Opens no connection. Thread: main; reads files.
//   models--ORG--NAME/refs/REVISION           a file with the commit that it was (models--NAME of a
//                                             name of one part)
//   models--ORG--NAME/snapshots/COMMIT/PATH   a link to the file's bytes
//   models--ORG--NAME/blobs/HASH              the bytes
// ModelScope's (VLLM_USE_MODELSCOPE) has models/ORG--NAME/snapshots/REVISION and no refs.

#include <optional>
#include <string>

#include "common/status.h"
#include "deploy/cli/hub_name.h"

namespace tandem {

struct HubCacheOptions {
  std::string folder;          // of the cache; empty: HubCacheFolder()
  std::string revision;        // branch, tag or commit; empty: the name's, or the hub's default
  bool needs_weights = false;  // what has been fetched without them is not found
};

// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub; of
// ModelScope $MODELSCOPE_CACHE or ~/.cache/modelscope.
std::string HubCacheFolder();
// $HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface.
std::string HuggingFaceHome();
// $HF_TOKEN_PATH, or "token" in HuggingFaceHome().
std::string HuggingFaceTokenFile();

bool IsHubOffline();    // HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
bool UsesModelScope();  // TANDEM_USE_MODELSCOPE, VLLM_USE_MODELSCOPE

// The folder of "org/name", or of "name", in the cache.
std::string HubRepositoryFolder(const std::string& cache, const std::string& repository);

// The revision that name and flag (either may be empty) mean. INVALID_ARGUMENT: they differ, or
// cannot be one.
StatusOr<std::string> HubRevision(const HubName& name, const std::string& flag);

// The folder, or the first GGUF file, of a model named as in hub_name.h; nullopt when the name is a
// path (of something that exists, or not of that form, or a word that is no model of the cache).
// NOT_FOUND: the cache does not have it.
StatusOr<std::optional<std::string>> FindInHubCache(const std::string& name,
                                                    const HubCacheOptions& options);

// Of a snapshot: itself where it has whole weights in safetensors, else the GGUF file of that quant
// (for "": Q4_K_M, else Q8_0, else any) with all its parts; nullopt: neither.
std::optional<std::string> FindWholeModel(const std::string& snapshot, const std::string& quant);

}  // namespace tandem
