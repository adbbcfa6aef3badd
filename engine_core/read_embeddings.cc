#include "engine_core/read_embeddings.h"

#include <optional>
#include <string>

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
StatusOr<PromptEmbeddings> FromTensor(const wire::TensorView& tensor, int32_t hidden_size) {
  const std::optional<PromptEmbeddings::Type> type = TypeOf(tensor.dtype);
  if (!type) {
    return InvalidArgumentError("prompt_embeds are of type " + std::string(tensor.dtype) +
                                ", must be float32, float16 or bfloat16");
  }
  if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] != hidden_size) {
    return InvalidArgumentError("prompt_embeds have the shape " + ShapeText(tensor.shape) +
                                ", must be [tokens, " + std::to_string(hidden_size) +
                                "] for this model");
  }
  PromptEmbeddings embeddings{.type = *type,
                              .num_rows = static_cast<int32_t>(tensor.shape[0]),
                              .num_columns = hidden_size,
                              .data = {}};
  if (tensor.data.size() != static_cast<size_t>(embeddings.num_rows) * embeddings.row_bytes()) {
    return InvalidArgumentError("prompt_embeds have " + std::to_string(tensor.data.size()) +
                                " bytes, which their shape " + ShapeText(tensor.shape) +
                                " contradicts");
  }
  embeddings.data = tensor.data;
  return embeddings;
}

// The zeros that stand for the rows.
Status PlaceZeros(const PromptEmbeddings& embeddings, wire::EngineCoreRequest* request) {
  std::vector<TokenId>& ids = request->prompt_token_ids;
  const auto num_rows = static_cast<size_t>(embeddings.num_rows);
  if (ids.empty() && request->own.num_prior_output_tokens == 0) {
    ids.assign(num_rows, 0);
    return OkStatus();
  }
  const int64_t num_prior = request->own.num_prior_output_tokens;
  if (num_prior < 0 || ids.size() != num_rows + static_cast<size_t>(num_prior)) {
    return InvalidArgumentError("prompt_embeds have " + std::to_string(num_rows) +
                                " rows, but the prompt has " + std::to_string(ids.size()) +
                                " token ids; a prompt of both is not supported");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const PromptEmbeddings>> ReadEmbeddings(const ExecutorLimits& limits,
                                                                 wire::EngineCoreRequest* request) {
  if (request->prompt_embeds.is_nil()) return std::shared_ptr<const PromptEmbeddings>();
  if (limits.hidden_size == 0) {
    return UnimplementedError(
        "this engine accepts prompt embeddings only with --enable-prompt-embeds");
  }
  if (!request->prompt_is_token_ids.is_nil()) {
    return UnimplementedError("prompts of embeddings and token ids together are not supported");
  }
  if (request->sampling_params.prompt_logprobs) {
    return InvalidArgumentError("prompt_logprobs are not compatible with prompt embeds");
  }
  ASSIGN_OR_RETURN(const wire::TensorView tensor,
                   wire::DecodeTensor(request->prompt_embeds, request->aux_frames));
  ASSIGN_OR_RETURN(PromptEmbeddings embeddings, FromTensor(tensor, limits.hidden_size));
  RETURN_IF_ERROR(PlaceZeros(embeddings, request));
  request->prompt_embeds = {};
  request->aux_frames.clear();
  return std::make_shared<const PromptEmbeddings>(std::move(embeddings));
}

}  // namespace tandem
