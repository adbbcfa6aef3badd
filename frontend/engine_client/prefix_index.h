#pragma once

// What each engine's prefix cache probably holds: the prompts that were sent to it, as hashes of
// whole blocks, each of which stands for all tokens before it too. An engine keeps what was used
// last; so does this, for as many blocks as it has: at least the last half of them, at most all.
// It does not know what outputs take, nor of other frontends; a wrong guess costs a computed
// prefix. Thread: the shard's.

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "proto_msgpack/schema.h"

namespace tandem {

// Of the prompt's whole blocks, from its begin on. Equal prefixes that engines may not share, those
// of different adapters or salts, have different hashes. Empty: block_size is not positive.
std::vector<uint64_t> PrefixHashes(const wire::EngineCoreRequest& request, int64_t block_size);

class PrefixIndex {
 public:
  explicit PrefixIndex(int num_engines) : engines_(static_cast<size_t>(num_engines)) {}

  // A new process, whose cache is empty.
  void Reset(int engine_index, int64_t num_blocks);
  // These are there from now on.
  void Add(int engine_index, std::span<const uint64_t> hashes);
  // How many blocks of the prefix each engine has.
  std::vector<int64_t> NumCached(std::span<const uint64_t> hashes) const;

 private:
  // Two generations: what is used moves to the younger one, which becomes the older one once it
  // has half of the blocks.
  struct Engine {
    size_t half = 0;
    std::unordered_set<uint64_t> young, old;
  };

  std::vector<Engine> engines_;
};

}  // namespace tandem
