#include "engine_core/read_embeddings.h"

#include <optional>
#include <string>
#include <vector>

#include "common/shape_text.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

std::optional<PromptEmbeddings::Type> TypeOf(std::string_view dtype) {
  if (dtype == "float32") return PromptEmbeddings::Type::kFloat32;
  if (dtype == "float16") return PromptEmbeddings::Type::kFloat16;
  if (dtype == "bfloat16") return PromptEmbeddings::Type::kBfloat16;
  return std::nullopt;
}

// Cannot overflow: the tensor's data is there, and its sizes fit 30 bits.
Status CheckTensor(const wire::TensorView& tensor, int32_t hidden_size) {
  if (!TypeOf(tensor.dtype)) {
    return InvalidArgumentError("prompt_embeds are of type " + std::string(tensor.dtype) +
                                ", must be float32, float16 or bfloat16");
  }
  if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] != hidden_size) {
    return InvalidArgumentError("prompt_embeds have the shape " + ShapeText(tensor.shape) +
                                ", must be [tokens, " + std::to_string(hidden_size) +
                                "] for this model");
  }
  const PromptEmbeddings rows{
      .type = *TypeOf(tensor.dtype), .num_columns = hidden_size, .runs = {}, .data = {}};
  if (tensor.data.size() != static_cast<size_t>(tensor.shape[0]) * rows.row_bytes()) {
    return InvalidArgumentError("prompt_embeds have " + std::to_string(tensor.data.size()) +
                                " bytes, which their shape " + ShapeText(tensor.shape) +
                                " contradicts");
  }
  return OkStatus();
}

// Which positions of the prompt are tokens; num_rows are those of the tensor.
StatusOr<std::vector<bool>> TokenPlaces(int64_t num_rows, const wire::EngineCoreRequest& request) {
  std::vector<bool> is_token(static_cast<size_t>(num_rows), false);
  if (request.prompt_is_token_ids.is_nil()) return is_token;
  ASSIGN_OR_RETURN(is_token, wire::UnpackBools(request.prompt_is_token_ids));
  if (is_token.size() != static_cast<size_t>(num_rows)) {
    return InvalidArgumentError("prompt_embeds have " + std::to_string(num_rows) +
                                " rows, but prompt_is_token_ids has " +
                                std::to_string(is_token.size()) + " entries");
  }
  return is_token;
}

// Zeros where rows stand.
Status PlaceZeros(const std::vector<bool>& is_token, wire::EngineCoreRequest* request) {
  std::vector<TokenId>& ids = request->prompt_token_ids;
  const int64_t num_prior = request->own.num_prior_output_tokens;
  const bool is_mixed = !request->prompt_is_token_ids.is_nil();
  if (ids.empty() && num_prior == 0 && !is_mixed) ids.assign(is_token.size(), 0);
  if (num_prior < 0 || ids.size() != is_token.size() + static_cast<size_t>(num_prior)) {
    return InvalidArgumentError("prompt_embeds have " + std::to_string(is_token.size()) +
                                " rows, but the prompt has " + std::to_string(ids.size()) +
                                " token ids");
  }
  for (size_t i = 0; i < is_token.size(); ++i) {
    if (!is_token[i]) ids[i] = 0;
  }
  return OkStatus();
}

// The rows of the tensor that count.
PromptEmbeddings RowsOf(const wire::TensorView& tensor, const std::vector<bool>& is_token) {
  PromptEmbeddings rows{.type = *TypeOf(tensor.dtype),
                        .num_columns = static_cast<int32_t>(tensor.shape[1]),
                        .runs = {},
                        .data = {}};
  for (size_t i = 0; i < is_token.size(); ++i) {
    if (is_token[i]) continue;
    const auto position = static_cast<int32_t>(i);
    if (rows.runs.empty() || rows.runs.back().end() != position) rows.runs.push_back({position, 0});
    ++rows.runs.back().num_rows;
    rows.data += tensor.data.substr(i * rows.row_bytes(), rows.row_bytes());
  }
  return rows;
}

}  // namespace

StatusOr<std::shared_ptr<const PromptEmbeddings>> ReadEmbeddings(const ExecutorLimits& limits,
                                                                 wire::EngineCoreRequest* request) {
  if (request->prompt_embeds.is_nil()) return std::shared_ptr<const PromptEmbeddings>();
  if (limits.hidden_size == 0) {
    return UnimplementedError(
        "this engine accepts prompt embeddings only with --enable-prompt-embeds");
  }
  if (request->sampling_params.prompt_logprobs) {
    return InvalidArgumentError("prompt_logprobs are not compatible with prompt embeds");
  }
  if (!request->sampling_params.prompt_logprob_token_ids.is_nil()) {
    return InvalidArgumentError("prompt_logprob_token_ids are not compatible with prompt embeds");
  }
  ASSIGN_OR_RETURN(const wire::TensorView tensor,
                   wire::DecodeTensor(request->prompt_embeds, request->aux_frames));
  RETURN_IF_ERROR(CheckTensor(tensor, limits.hidden_size));
  ASSIGN_OR_RETURN(const std::vector<bool> is_token, TokenPlaces(tensor.shape[0], *request));
  RETURN_IF_ERROR(PlaceZeros(is_token, request));
  auto embeddings = std::make_shared<const PromptEmbeddings>(RowsOf(tensor, is_token));
  request->prompt_embeds = {};
  request->prompt_is_token_ids = {};
  request->aux_frames.clear();
  if (embeddings->runs.empty()) return std::shared_ptr<const PromptEmbeddings>();
  return embeddings;
}

}  // namespace tandem
