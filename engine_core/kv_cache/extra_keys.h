#pragma once

// What the content of a KV block depends on besides its tokens: the adapter that computed it, the
// images (or other items) whose placeholders are among its tokens, a salt by which a client keeps
// its prompts apart from those of others, and embeddings in place of tokens. All of it is part of
// the block's hash, composed as vLLM does. Values; thread: engine loop.
// A salt comes with any request.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_core/kv_cache/prompt_embeddings.h"

namespace tandem {

using AdapterId = int32_t;  // 0: the model itself

class AdapterWeights;  // of models; nothing here looks into it

// A LoRA adapter. Name, path and version are its identity in the cache; the id is not, because it
// changes when an adapter is loaded again.
struct Adapter {
  AdapterId id = 0;
  std::string name;
  std::string path;
  // 0 for the first weights that were loaded under this name and path, else a digest of the
  // weights. vLLM has no such key, so blocks of version 0 have its hashes and others do not.
  int64_t version = 0;
  int32_t lora_int_id = 0;                             // the frontend's, for KV events
  uint64_t digest = 0;                                 // of the files
  std::shared_ptr<const AdapterWeights> weights = {};  // null in a replay
};

// A multimodal item: positions [begin, begin + num_tokens) of the prompt stand for it.
struct MultimodalItem {
  std::string identifier;  // of its content, by convention a hash
  int32_t begin = 0;
  int32_t num_tokens = 0;

  // Whether it has a position in [block_begin, block_end).
  bool Overlaps(int32_t block_begin, int32_t block_end) const {
    return begin < block_end && block_begin < begin + num_tokens;
  }
};

struct ExtraKeys {
  Adapter adapter;                    // of every block
  std::vector<MultimodalItem> items;  // of the blocks they overlap; in the order of `begin`
  std::string cache_salt;             // of the first block; empty: none
  std::shared_ptr<const PromptEmbeddings> embeddings = {};  // of the blocks they overlap; or null

  // The keys of a block as KV events carry them: the name, identifiers and salt alone.
  std::vector<std::string> EventValues(int32_t block_idx, int32_t block_size) const;
};

}  // namespace tandem
