#include "frontend/api/invocations.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/generate.h"
#include "frontend/api/pooling.h"

namespace tandem {
namespace {

bool Has(const Json& body, const char* field) {
  const auto it = body.find(field);
  return it != body.end() && !it->is_null();
}

// A body that has the field is of this kind; the first row that fits counts.
struct BodyKind {
  const char* field;
  MakeCall make_call;
  std::string_view name;  // vLLM's
};

constexpr BodyKind kGenerationKinds[] = {
    {"messages", MakeChatCompletion, "ChatCompletionRequest"},
    {"prompt", MakeCompletion, "CompletionRequest"},
};
constexpr std::string_view kScore = "ScoreRequest";
constexpr BodyKind kPoolingKinds[] = {
    {"input", MakePoolingByTask, "PoolingRequest"},
    {"messages", MakePoolingByTask, "PoolingRequest"},
    {"queries", MakeScore, kScore},
    {"data_1", MakeScore, kScore},
    {"text_1", MakeScore, kScore},
    {"query", MakeRerank, "RerankRequest"},
};

Status NoKind(std::span<const BodyKind> kinds) {
  std::string names;
  std::string_view last;
  for (const BodyKind& kind : kinds) {
    if (kind.name != last) {
      names.append(names.empty() ? "'" : ", '").append(kind.name).append("'");
    }
    last = kind.name;
  }
  return InvalidArgumentError("Cannot find suitable handler for request. Expected one of: [" +
                              names + "]");
}

// The call that the body belongs to, once it is known.
class InvocationCall final : public GenerationCall {
 public:
  InvocationCall(const ApiContext& context, std::span<const BodyKind> kinds)
      : context_(context), kinds_(kinds) {}

  const char* id_prefix() const override { return call().id_prefix(); }
  RequestType request_type() const override { return call().request_type(); }

  Status Parse(JsonDocument body) override {
    for (const BodyKind& kind : kinds_) {
      if (!body->is_object() || !Has(*body, kind.field)) continue;
      call_ = kind.make_call(context_);
      return call_->Parse(std::move(body));
    }
    return NoKind(kinds_);
  }

  bool needs_fetch() const override { return call().needs_fetch(); }
  Awaitable<Status> Fetch(Exchange& exchange, std::optional<double> deadline) override {
    return call().Fetch(exchange, deadline);
  }
  Status TakeFetched() override { return call().TakeFetched(); }
  GenerationRequest& request() override { return call().request(); }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    return call().Process(context);
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return call().MakeWriter(std::move(input));
  }

 private:
  GenerationCall& call() const {
    CHECK(call_ != nullptr) << "Parse comes first";
    return *call_;
  }

  const ApiContext& context_;
  const std::span<const BodyKind> kinds_;
  std::unique_ptr<GenerationCall> call_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeInvocation(const ApiContext& context) {
  return std::make_unique<InvocationCall>(context, kGenerationKinds);
}

std::unique_ptr<GenerationCall> MakePoolingInvocation(const ApiContext& context) {
  return std::make_unique<InvocationCall>(context, kPoolingKinds);
}

}  // namespace tandem
