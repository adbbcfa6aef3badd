#include "frontend/api/pooling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/shorten.h"
#include "frontend/api/error.h"
#include "frontend/api/pooled_writer.h"
#include "frontend/text/base64.h"

namespace tandem {
namespace {

// What each API calls a prompt.
constexpr FieldName kInput[] = {{"prompt", "input"}};
constexpr FieldName kTexts[] = {
    {"prompt", "texts"}, {"input", "texts"}, {"dimensions", "output_dimension"}};

StatusOr<ProcessedRequest> InWords(std::span<const FieldName> names,
                                   StatusOr<ProcessedRequest> processed) {
  if (processed.ok()) return processed;
  return InWordsOfBody(names, processed.status());
}

// What of the request the response depends on.
struct EncodingShape {
  EmbeddingEncoding encoding = EmbeddingEncoding::kFloat;
  EmbedType type = EmbedType::kFloat32;
  bool big_endian = false;
};

class EmbeddingBody final : public PooledWriter {
 public:
  // kind: "embedding", or what /pooling calls it.
  EmbeddingBody(EncodingShape shape, const char* kind, const char* key, WriterInput input)
      : PooledWriter(std::move(input)), shape_(shape), kind_(kind), key_(key) {}

  void WriteEnd(const Usage& usage) override {
    if (is_binary()) return WriteBytes(usage);
    BeginList();
    for (size_t i = 0; i < results_.size(); ++i) {
      if (i > 0) out_->push_back(',');
      out_->append("{\"index\":").append(std::to_string(i)).append(",\"object\":\"");
      out_->append(kind_).append("\",\"").append(key_).append("\":");
      if (shape_.encoding == EmbeddingEncoding::kBase64) {
        out_->append("\"").append(Base64Encode(Bytes(results_[i]))).append("\"");
      } else {
        AppendNumbers(results_[i], out_);
      }
      out_->push_back('}');
    }
    EndList(usage);
  }

  const char* content_type() const override {
    return is_binary() ? "application/octet-stream" : "application/json";
  }
  HeaderList headers() override {
    return metadata_.empty() ? HeaderList() : HeaderList{{"metadata", metadata_}};
  }

 private:
  bool is_binary() const {
    return shape_.encoding == EmbeddingEncoding::kBytes ||
           shape_.encoding == EmbeddingEncoding::kBytesOnly;
  }
  std::string Bytes(const PooledNumbers& numbers) const {
    return BytesOf(numbers, shape_.type, shape_.big_endian);
  }

  static Json ShapeOf(const PooledNumbers& numbers) {
    if (!numbers.is_matrix) return Json::array({numbers.values.size()});
    return Json::array({numbers.values.size() / numbers.num_columns, numbers.num_columns});
  }

  // All vectors one after another; where each is stands in a header.
  void WriteBytes(const Usage& usage) {
    Json items = Json::array();
    for (size_t i = 0; i < results_.size(); ++i) {
      const size_t start = out_->size();
      out_->append(Bytes(results_[i]));
      items.push_back({{"index", i},
                       {"embed_dtype", EmbedTypeName(shape_.type)},
                       {"endianness", shape_.big_endian ? "big" : "little"},
                       {"start", start},
                       {"end", out_->size()},
                       {"shape", ShapeOf(results_[i])}});
    }
    if (shape_.encoding == EmbeddingEncoding::kBytesOnly) return;
    metadata_ = DumpJson({{"id", input_.head.id},
                          {"created", input_.head.created},
                          {"model", input_.head.model},
                          {"data", std::move(items)},
                          {"usage", UsageJson(usage)}});
  }

  const EncodingShape shape_;
  const char* const kind_;
  const char* const key_;
  std::string metadata_;
};

// /v1/embeddings and /pooling.
class EmbeddingCall final : public GenerationCall {
 public:
  EmbeddingCall(const ApiContext& context, bool any_task)
      : input_processor_(*context.input_processor), any_task_(any_task) {}

  const char* id_prefix() const override { return any_task_ ? "pooling-" : "embd-"; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseEmbeddingRequest(std::move(body.mutable_value())));
    return OkStatus();
  }

  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    RETURN_IF_ERROR(CheckTask());
    shape_ = {request_.encoding, request_.embed_type, request_.big_endian};
    return InWords(kInput, input_processor_.Process(std::move(request_), context));
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return std::make_unique<EmbeddingBody>(shape_, any_task_ ? "pooling" : "embedding",
                                           any_task_ ? "data" : "embedding", std::move(input));
  }

 private:
  Status CheckTask() const {
    const PoolingTask own = input_processor_.config().pooling->task;
    if (!any_task_) return CheckEmbeds(own);
    if (request_.dimensions) {
      return InvalidArgumentError("dimensions is currently not supported").WithParam("dimensions");
    }
    const std::string task = request_.task.value_or(std::string(TaskName(own)));
    if (task == TaskName(own)) return OkStatus();
    std::string why = "the task " + task + " is not supported by this model, whose task is " +
                      std::string(TaskName(own)) +
                      ". Try switching the model's pooling_task via --pooler-config.task " + task +
                      ".";
    if (task == "score") why = "`score` task was removed; use `classify` instead.";
    if (task == "encode") {
      why = "`encode` task was removed; use `token_embed` or `token_classify` instead.";
    }
    return InvalidArgumentError(why).WithParam("task");
  }

  Status CheckEmbeds(PoolingTask own) const {
    if (!MakesVectors(own)) return UnimplementedError("The model does not support Embeddings API");
    if (!IsTokenWise(own) || request_.encoding == EmbeddingEncoding::kFloat) return OkStatus();
    return InvalidArgumentError(
               "encoding_format must be float where each token has an embedding; /pooling has the "
               "others, too")
        .WithParam("encoding_format");
  }

  const InputProcessor& input_processor_;
  const bool any_task_;
  PoolingRequest request_;
  EncodingShape shape_;
};

// ---- /classify ----

class ClassificationBody final : public PooledWriter {
 public:
  ClassificationBody(const std::vector<std::string>* labels, WriterInput input)
      : PooledWriter(std::move(input)), labels_(*labels) {}

  void WriteEnd(const Usage& usage) override {
    BeginList();
    for (size_t i = 0; i < results_.size(); ++i) {
      const std::vector<float>& probs = results_[i].values;
      const auto best =
          static_cast<size_t>(std::max_element(probs.begin(), probs.end()) - probs.begin());
      out_->append(i > 0 ? ",{\"index\":" : "{\"index\":").append(std::to_string(i));
      const Json label = best < labels_.size() ? Json(labels_[best]) : Json(nullptr);
      out_->append(",\"label\":").append(DumpJson(label)).append(",\"probs\":");
      AppendNumbers(results_[i], out_);
      out_->append(",\"num_classes\":").append(std::to_string(probs.size())).push_back('}');
    }
    EndList(usage);
  }

 private:
  const std::vector<std::string>& labels_;
};

class ClassificationCall final : public GenerationCall {
 public:
  explicit ClassificationCall(const ApiContext& context)
      : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "classify-"; }
  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseClassifyRequest(std::move(body.mutable_value())));
    return OkStatus();
  }
  GenerationRequest& request() override { return request_; }
  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    if (input_processor_.config().pooling->task != PoolingTask::kClassify) {
      return UnimplementedError("The model does not support Classification API");
    }
    return InWords(kInput, input_processor_.Process(std::move(request_), context));
  }
  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return std::make_unique<ClassificationBody>(&input_processor_.config().pooling->labels,
                                                std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  PoolingRequest request_;
};

// ---- /v2/embed ----

struct CohereShape {
  bool wants_float = true, wants_binary = false, wants_ubinary = false, wants_base64 = false;
  std::vector<std::string> texts;
};

class CohereBody final : public PooledWriter {
 public:
  CohereBody(CohereShape shape, WriterInput input)
      : PooledWriter(std::move(input)), shape_(std::move(shape)) {}

  void WriteEnd(const Usage& usage) override {
    out_->append("{\"id\":").append(DumpJson(input_.head.id)).append(",\"embeddings\":{");
    bool is_first = true;
    const auto add = [&](bool wanted, const char* name, const auto& write) {
      if (!wanted) return;
      out_->append(is_first ? "\"" : ",\"").append(name).append("\":[");
      is_first = false;
      for (size_t i = 0; i < results_.size(); ++i) {
        if (i > 0) out_->push_back(',');
        write(results_[i]);
      }
      out_->push_back(']');
    };
    add(shape_.wants_float, "float", [&](const PooledNumbers& n) { AppendNumbers(n, out_); });
    add(shape_.wants_binary, "binary", [&](const PooledNumbers& n) { AppendSigns(n, -128); });
    add(shape_.wants_ubinary, "ubinary", [&](const PooledNumbers& n) { AppendSigns(n, 0); });
    add(shape_.wants_base64, "base64", [&](const PooledNumbers& n) {
      out_->append("\"").append(Base64Encode(BytesOf(n, EmbedType::kFloat32, false)));
      out_->push_back('"');
    });
    const Json rest = {
        {"texts", shape_.texts},
        {"meta",
         {{"api_version", {{"version", "2"}}},
          {"billed_units", {{"input_tokens", usage.prompt_tokens}, {"image_tokens", 0}}}}},
        {"response_type", "embeddings_by_type"}};
    out_->append("},").append(DumpJson(rest).substr(1));
  }

 private:
  // Eight signs in a byte, the first in its highest bit.
  void AppendSigns(const PooledNumbers& numbers, int offset) {
    out_->push_back('[');
    for (size_t i = 0; i < numbers.values.size(); i += 8) {
      int byte = 0;
      for (size_t j = i; j < i + 8; ++j) byte = byte * 2 + (numbers.values[j] >= 0 ? 1 : 0);
      out_->append(i > 0 ? "," : "").append(std::to_string(byte + offset));
    }
    out_->push_back(']');
  }

  const CohereShape shape_;
};

class CohereEmbeddingCall final : public GenerationCall {
 public:
  explicit CohereEmbeddingCall(const ApiContext& context)
      : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "embd-"; }
  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseCohereEmbedRequest(std::move(body.mutable_value())));
    return OkStatus();
  }
  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    const PoolerConfig& pooling = *input_processor_.config().pooling;
    if (pooling.task != PoolingTask::kEmbed) {
      return UnimplementedError("The model does not support Embeddings API");
    }
    const int64_t size = request_.dimensions.value_or(pooling.embedding_size);
    if ((request_.wants_binary || request_.wants_ubinary) && size % 8 != 0) {
      return InvalidArgumentError("binary embeddings need a dimension that is a multiple of 8, " +
                                  std::to_string(size) + " is not")
          .WithParam("embedding_types");
    }
    shape_ = {request_.wants_float, request_.wants_binary, request_.wants_ubinary,
              request_.wants_base64, std::get<TextPrompts>(request_.prompt)};
    RETURN_IF_ERROR(AddPrompt(pooling));
    const std::optional<int64_t> max_tokens = TakeRefusedAbove();
    request_.truncate_prompt_tokens = KeptTokens(context.max_model_len);
    auto processed =
        InWords(kTexts, input_processor_.Process(static_cast<PoolingRequest&&>(request_), context));
    if (processed.ok() && max_tokens) RETURN_IF_ERROR(CheckTokens(*processed, *max_tokens));
    return processed;
  }
  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return std::make_unique<CohereBody>(shape_, std::move(input));
  }

 private:
  // What sentence-transformers puts before a text of this type.
  Status AddPrompt(const PoolerConfig& pooling) {
    if (!request_.input_type) return OkStatus();
    std::string name = *request_.input_type;
    if (name == "search_query") name = "query";
    if (name == "search_document") name = "document";
    const auto prompt = pooling.prompts.find(name);
    if (prompt == pooling.prompts.end()) {
      return InvalidArgumentError("input_type is " + Shorten(*request_.input_type) +
                                  ", but the model has no prompt of this name")
          .WithParam("input_type");
    }
    for (std::string& text : std::get<TextPrompts>(request_.prompt)) text = prompt->second + text;
    return OkStatus();
  }
  // With truncate NONE max_tokens cuts nothing: a text of more is refused.
  std::optional<int64_t> TakeRefusedAbove() {
    if (request_.truncation_side != "none") return std::nullopt;
    request_.truncation_side.reset();
    return std::exchange(request_.truncate_prompt_tokens, std::nullopt);
  }
  static Status CheckTokens(const ProcessedRequest& processed, int64_t max_tokens) {
    for (const wire::EngineCoreRequest& request : processed.requests) {
      const auto size = static_cast<int64_t>(request.prompt_token_ids.size());
      if (size <= max_tokens) continue;
      return InvalidArgumentError("a text has " + std::to_string(size) + " tokens, max_tokens is " +
                                  std::to_string(max_tokens) + "; truncate END or START cuts it")
          .WithParam("texts");
    }
    return OkStatus();
  }
  std::optional<int64_t> KeptTokens(int64_t max_model_len) const {
    if (!request_.truncate_prompt_tokens) return std::nullopt;
    return std::min(*request_.truncate_prompt_tokens, max_model_len);
  }

  const InputProcessor& input_processor_;
  CohereEmbedRequest request_;
  CohereShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeEmbedding(const ApiContext& context) {
  return std::make_unique<EmbeddingCall>(context, /*any_task=*/false);
}

std::unique_ptr<GenerationCall> MakePooling(const ApiContext& context) {
  return std::make_unique<EmbeddingCall>(context, /*any_task=*/true);
}

std::unique_ptr<GenerationCall> MakeClassification(const ApiContext& context) {
  return std::make_unique<ClassificationCall>(context);
}

std::unique_ptr<GenerationCall> MakePoolingByTask(const ApiContext& context) {
  const PoolingTask task = context.input_processor->config().pooling->task;
  if (MakesVectors(task)) return MakeEmbedding(context);
  return IsTokenWise(task) ? MakePooling(context) : MakeClassification(context);
}

std::unique_ptr<GenerationCall> MakeCohereEmbedding(const ApiContext& context) {
  return std::make_unique<CohereEmbeddingCall>(context);
}

}  // namespace tandem
