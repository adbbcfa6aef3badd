#include "frontend/api/invocations.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/check.h"
#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"

namespace tandem {
namespace {

bool Has(const Json& body, const char* field) {
  const auto it = body.find(field);
  return it != body.end() && !it->is_null();
}

// The call that the body belongs to, once it is known.
class InvocationCall final : public GenerationCall {
 public:
  explicit InvocationCall(const ApiContext& context) : context_(context) {}

  const char* id_prefix() const override { return call().id_prefix(); }

  Status Parse(JsonDocument body) override {
    if (body->is_object() && Has(*body, "messages")) {
      call_ = MakeChatCompletion(context_);
    } else if (body->is_object() && Has(*body, "prompt")) {
      call_ = MakeCompletion(context_);
    } else {
      return InvalidArgumentError(
          "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', "
          "'CompletionRequest']");
    }
    return call_->Parse(std::move(body));
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
  std::unique_ptr<GenerationCall> call_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeInvocation(const ApiContext& context) {
  return std::make_unique<InvocationCall>(context);
}

}  // namespace tandem
