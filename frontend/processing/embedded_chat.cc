// Prompts of chats with embeddings among their parts: token ids and rows, spliced by position.

#include <utility>

#include "frontend/openai/refuse.h"
#include "frontend/processing/embedded_parts.h"
#include "frontend/processing/input_processor.h"

namespace tandem {
namespace {

Status CheckFields(const ChatRequest& request) {
  const char* field = request.echo                     ? "echo"
                      : request.prompt_logprobs        ? "prompt_logprobs"
                      : request.truncate_prompt_tokens ? "truncate_prompt_tokens"
                      : request.return_token_offsets   ? "return_token_offsets"
                      : request.return_prompt_text     ? "return_prompt_text"
                      : request.use_beam_search        ? "use_beam_search"
                                                       : nullptr;
  if (field == nullptr) return OkStatus();
  return Refuse(field, std::string(field) + " is not available with prompt_embeds");
}

}  // namespace

StatusOr<InputProcessor::Prompt> InputProcessor::EmbeddedChatPrompt(const ChatRequest& request,
                                                                    const EmbeddedParts& parts,
                                                                    std::string_view rendered,
                                                                    int64_t max_model_len) const {
  RETURN_IF_ERROR(CheckFields(request));
  RETURN_IF_ERROR(CheckTextBytes(rendered.size(), max_model_len));
  ASSIGN_OR_RETURN(const TextAndParts cut, CutAtMarks(rendered, parts));
  std::vector<TorchTensor> tensors;
  for (const std::string& base64 : parts.base64) {
    ASSIGN_OR_RETURN(Prompt part, ReadEmbeddings(base64));
    tensors.push_back(std::move(*part.embeddings));
    if (tensors.back().dtype != tensors[0].dtype ||
        tensors.back().num_columns != tensors[0].num_columns) {
      return Refuse("messages", "all prompt_embeds of a chat must have one type and row size");
    }
  }
  Prompt prompt;
  for (size_t i = 0; i < cut.texts.size(); ++i) {
    ASSIGN_OR_RETURN(
        const std::vector<TokenId> ids,
        i == 0 ? tokenizer_->Encode(cut.texts[i], request.add_special_tokens.value_or(false))
               : EncodeContinuation(*tokenizer_, cut.texts[i]));
    for (const TokenId id : ids) RETURN_IF_ERROR(sampling_.CheckId("prompt", id));
    prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
    prompt.is_token.resize(prompt.token_ids.size(), true);
    if (i == cut.parts.size()) break;
    const TorchTensor& rows = tensors[cut.parts[i]];
    prompt.token_ids.resize(prompt.token_ids.size() + static_cast<size_t>(rows.num_rows), 0);
    prompt.is_token.resize(prompt.token_ids.size(), false);
  }
  if (static_cast<int64_t>(prompt.token_ids.size()) >= max_model_len) return prompt;  // refused
  ASSIGN_OR_RETURN(prompt.embeddings, SpliceRows(prompt.is_token, cut.parts, tensors));
  return prompt;
}

// The wire has a row for every position. Those of tokens are zeros.
StatusOr<TorchTensor> InputProcessor::SpliceRows(const std::vector<bool>& is_token,
                                                 const std::vector<size_t>& parts,
                                                 const std::vector<TorchTensor>& tensors) const {
  TorchTensor all{.dtype = tensors[0].dtype,
                  .num_rows = static_cast<int64_t>(is_token.size()),
                  .num_columns = tensors[0].num_columns,
                  .data = {}};
  const size_t row_bytes = tensors[0].data.size() / static_cast<size_t>(tensors[0].num_rows);
  const auto most_bytes = static_cast<size_t>(config_.max_fanout_bytes);
  if (is_token.size() > most_bytes / row_bytes) {
    return Refuse("messages",
                  "with prompt_embeds of this row size the prompt would need more "
                  "than " +
                      std::to_string(most_bytes) + " bytes");
  }
  all.data.reserve(is_token.size() * row_bytes);
  auto part = parts.begin();
  for (size_t i = 0; i < is_token.size();) {
    if (is_token[i]) {
      all.data.append(row_bytes, '\0');
      ++i;
      continue;
    }
    const TorchTensor& rows = tensors[*part++];
    all.data += rows.data;
    i += static_cast<size_t>(rows.num_rows);
  }
  return all;
}

}  // namespace tandem
