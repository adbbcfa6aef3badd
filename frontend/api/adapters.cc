#include "frontend/api/adapters.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "frontend/adapters/adapter_directory.h"
#include "frontend/api/error.h"
#include "frontend/api/models.h"
#include "frontend/openai/adapter_request.h"

namespace tandem {
namespace {

// The status of a directory's call. What is wrong with an adapter is the caller's business, and
// not an internal error.
Response OperationError(const Status& status) {
  ApiError error = ToApiError(status);
  error.message = status.message();
  if (status.code() == StatusCode::kInvalidArgument ||
      status.code() == StatusCode::kFailedPrecondition) {
    error.type = "InvalidUserInput";
  }
  Response response = ErrorResponse(status);
  response.body = ErrorBody(error);
  return response;
}

Response Success(const std::string& name, const char* what) {
  return {200, "Success: LoRA adapter '" + name + "' " + what + " successfully.", "", {}};
}

}  // namespace

Awaitable<void> HandleLoadAdapter(Exchange& exchange, ApiContext* context) {
  auto json = ParseJsonBody(exchange.request().body, context->options.json_limits);
  if (!json.ok()) co_return exchange.Respond(ErrorResponse(json.status()));
  const auto request = ParseLoadAdapterRequest(std::move(json->mutable_value()));
  if (!request.ok()) co_return exchange.Respond(ErrorResponse(request.status()));
  AdapterModule module;
  module.name = *request->lora_name;
  module.path = *request->lora_path;
  module.is_3d_lora_weight = request->is_3d_lora_weight;
  const Status loaded =
      co_await context->adapter_directory->Load(std::move(module), request->load_inplace);
  exchange.Respond(loaded.ok() ? Success(*request->lora_name, "added") : OperationError(loaded));
}

Awaitable<void> HandleUnloadAdapter(Exchange& exchange, ApiContext* context) {
  auto json = ParseJsonBody(exchange.request().body, context->options.json_limits);
  if (!json.ok()) co_return exchange.Respond(ErrorResponse(json.status()));
  const auto request = ParseUnloadAdapterRequest(std::move(json->mutable_value()));
  if (!request.ok()) co_return exchange.Respond(ErrorResponse(request.status()));
  const Status unloaded = co_await context->adapter_directory->Unload(*request->lora_name);
  exchange.Respond(unloaded.ok() ? Success(*request->lora_name, "removed")
                                 : OperationError(unloaded));
}

std::optional<std::string> FindAdapterFolder(const ApiContext& context,
                                             const ServedAdapters& adapters,
                                             const std::optional<std::string>& model) {
  if (context.adapter_directory == nullptr || !model || adapters.Find(*model) != nullptr) return {};
  if (IsServed(context.options.served_model_names, *model)) return {};
  return context.adapter_directory->folders().Find(*model);
}

Awaitable<Status> LoadFromFolder(ApiContext* context, std::string name, std::string folder) {
  AdapterModule module;
  module.name = std::move(name);
  module.path = std::move(folder);
  const Status loaded = co_await context->adapter_directory->Resolve(std::move(module));
  co_return loaded.ok() ? loaded : Status(loaded).WithParam("model");
}

}  // namespace tandem
