// vLLM 0.33's routes for adapters, recorded call by call (tests/golden/lora_api/vllm.json): the
// same calls over HTTP, with an engine that replies what the recorded one did. A bad adapter is 400
// here, where vLLM responds with 500; malformed bodies have words of our own.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "frontend/adapters/adapter_directory.h"
#include "frontend/api/error.h"
#include "frontend/api/models.h"
#include "frontend/api/routes.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"
#include "test_server.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

json Recorded() {
  std::ifstream file(TANDEM_GOLDEN_DIR "/lora_api/vllm.json");
  REQUIRE(file);
  return json::parse(file);
}

// Recorded paths begin with ROOT, which is no absolute path.
json WithRoot(json value) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    for (size_t at = text.find("ROOT"); at != text.npos; at = text.find("ROOT", at + 5)) {
      text.replace(at, 4, "/ROOT");
    }
    return text;
  }
  if (value.is_structured()) {
    for (json& part : value) part = WithRoot(part);
  }
  return value;
}

class Replay {
 public:
  explicit Replay(const json& first_step)
      : metrics_({.model_name = "base-a"}),
        endpoint_({.handshake_address = "ipc:///nowhere", .data_address = "ipc:///"}),
        client_({}, &endpoint_,
                {.post = [](const std::function<void()>&) {},
                 .at = [](double, const std::function<void()>&) {},
                 .clock = &clock_}),
        directory_({"base-a", "base-b"}, &owner_, &clock_, Calls()) {
    context_.engine_client = &client_;
    context_.metrics = &metrics_;
    context_.admission_gate = &admission_gate_;
    context_.clock = &clock_;
    context_.facts = &facts_;
    context_.options.served_model_names = {"base-a", "base-b"};
    context_.adapter_directory = &directory_;
    facts_.changes_adapters = true;
    const json module = {{"name", "static"},
                         {"path", first_step["response"]["data"][2]["root"]},
                         {"base_model_name", "base-b"}};
    const auto modules = ParseAdapterModules({module.dump()}, context_.options.served_model_names);
    REQUIRE(directory_.Begin(*modules, "").ok());
    ServerOptions options;
    options.error = HttpErrorResponse;
    server_ = std::make_unique<TestServer>(ApiRoutes({&context_}), std::move(options));
    owner_.Start();
    Run([this] { directory_.OnEngineReady(0); });
    added_.clear();
    context_.adapters = directory_.served();
  }
  ~Replay() {
    server_.reset();
    owner_.Stop();
    owner_.Join();
  }

  void Step(const json& step) {
    if (step["path"] == "/v1/models") return CheckModels(step["response"]["data"]);
    Expect(step);
    Client client(server_->port());
    const std::string body = step["body"].is_string() ? step["body"].get<std::string>()
                             : step["body"].is_null() ? ""
                                                      : step["body"].dump();
    std::string type = "application/json";
    if (step["headers"].is_object()) type = step["headers"]["content-type"].get<std::string>();
    const Reply reply =
        client.Ask(step["method"].get<std::string>() + " " + step["path"].get<std::string>() +
                   " HTTP/1.1\r\nHost: x\r\nContent-Type: " + type +
                   "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    CheckReply(step, reply);
    CHECK(TakeAdded() == Wanted(step["engine_add_lora"]));
  }

 private:
  AdapterDirectory::Calls Calls() {
    AdapterDirectory::Calls calls;
    calls.check_engine = [](int) { return OkStatus(); };
    calls.num_slots = [](int) { return 1; };
    calls.is_ours = [](int) { return false; };
    calls.call_engine = [this](int, std::string_view method, const wire::RawValue& args,
                               const UtilityCalls::Callback& callback) {
      if (method == "add_lora") added_.push_back(wire::ToJson(args.packed)[0]);
      if (refusal_) return callback(InternalError(*refusal_));
      callback(wire::PackedBool(true));
    };
    calls.publish = [this](ServedAdaptersPtr adapters, const wire::LoraRequest* /*loaded*/,
                           std::function<void()> done) {
      server_->shard().Post([this, adapters = std::move(adapters), done = std::move(done)] {
        context_.adapters = adapters;
        owner_.Post(done);
      });
    };
    calls.on_begun = [](const Status& status) { CHECK(status.ok()); };
    calls.is_handing_over = [] { return false; };
    return calls;
  }

  void Run(const std::function<void()>& function) {
    std::promise<void> done;
    owner_.Post([&] {
      function();
      done.set_value();
    });
    REQUIRE(done.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  }

  // What the recorded engine replied follows from the recorded response.
  void Expect(const json& step) {
    std::optional<std::string> refusal;
    if (step["status"] == 500 || (step["status"] == 404 && !step["engine_add_lora"].empty())) {
      refusal = step["response"]["error"]["message"].get<std::string>();
    }
    Run([&] { refusal_ = refusal; });
  }

  static json Wanted(const json& requests) {
    json wanted = json::array();
    for (const json& each : requests) {
      wanted.push_back({each["lora_name"], each["lora_int_id"], each["lora_path"],
                        each["base_model_name"], each["load_inplace"], false});
    }
    return wanted;
  }

  json TakeAdded() {
    json added = json::array();
    Run([&] { added = std::exchange(added_, json::array()); });
    return added;
  }

  static void CheckReply(const json& step, const Reply& reply) {
    const bool is_bad_adapter = step["status"] == 500;
    CHECK(reply.status == (is_bad_adapter ? 400 : step["status"].get<int>()));
    if (step["content_type"].is_null()) {
      CHECK(reply.body == step["response"]);
      CHECK_FALSE(reply.Has("content-type:"));
      return;
    }
    const json body = json::parse(reply.body);
    if (!step["response"].contains("error")) {
      CHECK(body == step["response"]);  // 404 and 405 of HTTP itself
      return;
    }
    const json &error = body["error"], &wanted = step["response"]["error"];
    const bool is_form = wanted["type"] == "Bad Request";
    if (is_bad_adapter) CHECK(error["type"] == "InvalidUserInput");
    if (!is_bad_adapter) CHECK(error["type"] == wanted["type"]);
    if (!is_form) CHECK(error["message"] == wanted["message"]);
    if (is_form && wanted["param"] != "body.1") CHECK(error["param"] == wanted["param"]);
  }

  void CheckModels(const json& wanted) {
    const ModelCards cards{context_.options.served_model_names, *directory_.served(), "BASE", 0,
                           512};
    const json list = json::parse(ModelListBody(cards))["data"];
    REQUIRE(list.size() == wanted.size());
    for (size_t i = 0; i < list.size(); ++i) {
      for (const auto& [key, value] : wanted[i].items()) {
        CAPTURE(i, key);
        if (key != "created" && key != "permission") CHECK(list[i][key] == value);
      }
      const auto card = ModelBody(cards, wanted[i]["id"]);
      REQUIRE(card.ok());
      CHECK(json::parse(*card)["root"] == wanted[i]["root"]);
    }
  }

  SystemClock clock_;
  Metrics metrics_;
  AdmissionGate admission_gate_{AdmissionLimits()};
  wire::FrontendEndpoint endpoint_;
  EngineClient client_;
  Shard owner_{7};
  AdapterDirectory directory_;
  ApiContext context_;
  ServerFacts facts_;
  std::unique_ptr<TestServer> server_;
  // Of the engine; on the owner's shard.
  std::optional<std::string> refusal_;
  json added_ = json::array();
};

TEST_CASE("lora api: vLLM's recorded calls have its responses, ids and lists") {
  const json steps = WithRoot(Recorded()["steps"]);
  REQUIRE(steps.size() > 20);
  Replay replay(steps[0]);
  for (size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(i, steps[i].dump());
    replay.Step(steps[i]);
  }
}

TEST_CASE("lora api: vLLM's forms of --lora-modules") {
  const json forms = Recorded()["lora_modules_forms"];
  REQUIRE(forms.size() > 5);
  for (const json& form : forms) {
    CAPTURE(form.dump());
    const auto modules = ParseAdapterModules(form["args"], {"base"});
    REQUIRE(modules.ok() == form.contains("modules"));
    if (!modules.ok()) continue;
    json parsed = json::array();
    for (const AdapterModule& module : *modules) {
      parsed.push_back({module.name, module.path,
                        module.base_model_name ? json(*module.base_model_name) : json(nullptr),
                        module.is_3d_lora_weight});
    }
    CHECK(parsed == form["modules"]);
  }
}

}  // namespace
}  // namespace tandem
