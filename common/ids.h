#pragma once

// Identities that would be easy to confuse if all were int. Values, any thread.

#include <cstdint>
#include <string>

namespace tandem {

using TokenId = int32_t;  // an index into the vocabulary; what kernels and the wire carry
// The internal id: "<external id>-<8 hex>", unique over its lifetime.
using RequestId = std::string;

enum class BlockId : int32_t {};         // a KV cache block; 0 is the null block
inline constexpr BlockId kNullBlock{0};  // never allocated; in a table: no block here
// A row of the worker's persistent batch, [0, max_num_seqs).
enum class RequestSlot : int32_t {};

constexpr int32_t Index(BlockId id) { return static_cast<int32_t>(id); }
constexpr int32_t Index(RequestSlot slot) { return static_cast<int32_t>(slot); }

}  // namespace tandem
