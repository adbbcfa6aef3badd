#include "engine_core/executor/prompt_scores.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "common/shape_text.h"
#include "engine_core/sampling/logprobs.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

Status Refuse(const std::string& what) {
  return InvalidArgumentError("prompt_logprob_token_ids " + what);
}

template <class T>
std::vector<T> NumbersOf(std::string_view data) {
  std::vector<T> numbers(data.size() / sizeof(T));
  std::memcpy(numbers.data(), data.data(), numbers.size() * sizeof(T));
  return numbers;
}

template <class T>
wire::RawValue PackedMatrix(const char* dtype, int64_t rows, int64_t columns,
                            const std::vector<T>& cells) {
  return wire::PackedTensor(
      {.dtype = dtype,
       .shape = {rows, columns},
       .data = {reinterpret_cast<const char*>(cells.data()), cells.size() * sizeof(T)}});
}

// The shape's sizes fit 30 bits, so their product fits 64.
StatusOr<std::vector<int64_t>> ReadNumbers(const wire::TensorView& tensor) {
  const bool is_narrow = tensor.dtype == "<i4" || tensor.dtype == "int32";
  const bool is_wide = tensor.dtype == "<i8" || tensor.dtype == "int64";
  if (!is_narrow && !is_wide) {
    return Refuse("are of type " + std::string(tensor.dtype) + ", must be int32 or int64");
  }
  const int64_t num_bytes = tensor.shape[0] * tensor.shape[1] * (is_narrow ? 4 : 8);
  if (static_cast<int64_t>(tensor.data.size()) != num_bytes) {
    return Refuse("have " + std::to_string(tensor.data.size()) + " bytes, which their shape " +
                  ShapeText(tensor.shape) + " contradicts");
  }
  if (is_wide) return NumbersOf<int64_t>(tensor.data);
  const std::vector<int32_t> narrow = NumbersOf<int32_t>(tensor.data);
  return std::vector<int64_t>(narrow.begin(), narrow.end());
}

}  // namespace

Status CheckPromptScoreIds(int32_t vocab_size, wire::EngineCoreRequest* request) {
  wire::SamplingParams& params = request->sampling_params;
  if (params.prompt_logprob_token_ids.is_nil()) return OkStatus();
  ASSIGN_OR_RETURN(const wire::TensorView tensor,
                   wire::DecodeTensor(params.prompt_logprob_token_ids, request->aux_frames));
  const int32_t begin = params.prompt_logprob_start.value_or(0);
  if (begin < 0) return Refuse("begin at " + std::to_string(begin) + ", before the prompt");
  const int64_t num_prompt_tokens =
      static_cast<int64_t>(request->prompt_token_ids.size()) - request->own.num_prior_output_tokens;
  const int64_t num_rows = std::max<int64_t>(num_prompt_tokens - 1 - begin, 0);
  if (tensor.shape.size() != 2 || tensor.shape[0] != num_rows || tensor.shape[1] < 1) {
    return Refuse("have the shape " + ShapeText(tensor.shape) + ", must be [" +
                  std::to_string(num_rows) + ", ids] for this prompt");
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ReadNumbers(tensor));
  std::vector<TokenId> ids;
  for (const int64_t number : numbers) {
    if (number < -1 || number >= vocab_size) {
      return Refuse("hold token id " + std::to_string(number) + ", the vocabulary has " +
                    std::to_string(vocab_size) + " tokens");
    }
    ids.push_back(static_cast<TokenId>(number));
  }
  params.prompt_logprob_token_ids = PackedMatrix("<i4", num_rows, tensor.shape[1], ids);
  return OkStatus();
}

StatusOr<PromptScores> PromptScores::For(const wire::SamplingParams& params) {
  ASSIGN_OR_RETURN(const wire::TensorView tensor,
                   wire::DecodeTensor(params.prompt_logprob_token_ids, {}));
  PromptScores scores;
  scores.begin_ = params.prompt_logprob_start.value_or(0);
  scores.num_rows_ = tensor.shape[0];
  scores.num_columns_ = tensor.shape[1];
  scores.ids_ = NumbersOf<TokenId>(tensor.data);
  scores.scores_.resize(scores.ids_.size());
  return scores;
}

void PromptScores::Fill(int32_t place, std::span<const float> logits, bool normalized) {
  if (place < begin_) return;
  const auto columns = static_cast<size_t>(num_columns_);
  const size_t first = static_cast<size_t>(place - begin_) * columns;
  FillScoresOf(logits, normalized, std::span(ids_).subspan(first, columns),
               std::span(scores_).subspan(first, columns));
}

wire::RawValue PromptScores::Packed() const {
  return PackedMatrix("float32", num_rows_, num_columns_, scores_);
}

}  // namespace tandem
