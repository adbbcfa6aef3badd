#pragma once

// The vectors and scores of a model that pools, from the engine's tensor to a client's bytes.
// Pure; any thread. Failure: a tensor of another type or shape is INTERNAL, since an engine made
// it.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/openai/pooling_request.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// A vector, or a row for each token.
struct PooledNumbers {
  size_t num_columns = 0;
  bool is_matrix = false;
  std::vector<float> values;
};

// From float32, or from the half types that other engines send.
StatusOr<PooledNumbers> ReadPooled(const wire::RawValue& tensor);

// Appends "[0.5,-1.25]", or a list of rows: the shortest text of each float32.
void AppendNumbers(const PooledNumbers& numbers, std::string* out);

// The values rounded to a type, one after another in its byte order.
std::string BytesOf(const PooledNumbers& numbers, EmbedType type, bool big_endian);
std::string_view EmbedTypeName(EmbedType type);

}  // namespace tandem
