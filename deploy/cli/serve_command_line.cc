#include "deploy/cli/serve_command_line.h"

#include <arpa/inet.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/cli/arguments.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/config_file.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kAbout = "tandem serve";
constexpr std::string_view kCommandLine = "command line";  // an origin

void Append(const Words& from, Words* to) { to->insert(to->end(), from.begin(), from.end()); }

// All that the command line may name: the pair's rows and the command's own.
std::vector<Flag> KnownFlags(std::vector<Flag> own, const std::vector<Flag>& pair) {
  own.insert(own.end(), pair.begin(), pair.end());
  return own;
}

// The flags that words of a command line give as a whole or by keys; bare words give the model.
std::map<std::string, bool> GivenNames(const Words& words, const std::vector<Flag>& flags) {
  std::map<std::string, bool> by_keys;  // false: as a whole
  for (const std::string& word : words) {
    const std::string name = FlagNameOf(word, flags);
    if (name.empty()) continue;
    const bool has_key = word.substr(0, word.find('=')).find('.') != word.npos;
    const auto [it, is_new] = by_keys.emplace(name, has_key);
    if (!is_new) it->second = it->second && has_key;
  }
  return by_keys;
}

// The file's flags that the command line does not replace, before its own words.
Words MergeFile(const std::vector<ConfigEntry>& entries, const Words& args, bool has_model,
                const std::vector<Flag>& flags, ServeCommandLine* line) {
  const std::map<std::string, bool> given = GivenNames(args, flags);
  Words words;
  for (const auto& [name, by_keys] : given) line->origins[name] = kCommandLine;
  if (has_model) line->origins["model"] = kCommandLine;
  for (const ConfigEntry& entry : entries) {
    const Words words_of_entry = RewriteFlags(entry.words, flags);
    const std::string name = FlagNameOf(words_of_entry.front(), flags);
    const auto it = given.find(name);
    const bool is_replaced = (it != given.end() && !it->second) || (name == "model" && has_model);
    if (is_replaced) continue;
    std::string& origin = line->origins[name];
    origin = origin.empty() ? entry.origin : entry.origin + " and " + origin;
    Append(words_of_entry, &words);
  }
  Append(args, &words);
  return words;
}

// `--model=FOLDER` and the like in place of a hub name, for both processes.
Status UseHubCache(const ModelPuller& pull, ServeCommandLine* line) {
  const ServeFlags& own = line->own;
  ModelPuller allowed;
  if (!own.check_config && pull) {
    allowed = [&](ModelPull wanted) {
      wanted.token = own.hf_token;
      return pull(wanted);
    };
  }
  const std::string model = line->frontend.model;
  const bool needs_weights = line->engine.load_format != "dummy";
  ASSIGN_OR_RETURN(
      const std::optional<std::string> folder,
      FindOrPullModel(model, {own.download_dir, own.revision, needs_weights}, allowed));
  if (folder) {
    Words names;
    if (line->frontend.api.served_model_names.empty()) names = {"--served-model-name", model};
    Append(names, &line->frontend_words);
    const Words change = {"--model=" + *folder};
    line->frontend_words =
        ChangedFlags(FrontendFlags(line->frontend), line->frontend_words, change);
    line->engine_words = ChangedFlags(EngineFlags(line->engine), line->engine_words, change);
  } else if (!own.revision.empty()) {
    line->warnings.push_back("--revision has no effect: the model is a folder");
  }
  const std::string tokenizer = line->frontend.tokenizer;
  const std::string& revision =
      own.tokenizer_revision.empty() ? own.revision : own.tokenizer_revision;
  ASSIGN_OR_RETURN(const std::optional<std::string> tokenizer_folder,
                   FindOrPullModel(tokenizer, {own.download_dir, revision}, allowed));
  if (tokenizer_folder) {
    for (Words* words : {&line->frontend_words, &line->engine_words}) {
      words->push_back("--tokenizer=" + *tokenizer_folder);
    }
  } else if (!own.tokenizer_revision.empty()) {
    line->warnings.push_back(
        "--tokenizer-revision has no effect: --tokenizer names no tokenizer of the hub");
  }
  return OkStatus();
}

// The page is there without being asked for where only this machine can reach it.
void UseDashboard(ServeCommandLine* line) {
  const std::string& host = line->frontend.server.host;
  in_addr address{};
  const bool is_loopback = host == "localhost" || host == "::1" ||
                           (inet_pton(AF_INET, host.c_str(), &address) == 1 &&
                            ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET);
  const std::vector<Flag> flags = FrontendFlags(line->frontend);
  if (!is_loopback || OriginOf(*FindFlag(flags, "--enable-dashboard"), *line) != "default") return;
  line->frontend_words.push_back("--enable-dashboard");
  line->origins["enable-dashboard"] = "default with --host " + host;
}

// Both processes' words into their tables.
Status ParseWords(ServeCommandLine* line) {
  RETURN_IF_ERROR(ParseFlags(FrontendFlags(line->frontend), line->frontend_words, kAbout).status());
  return ParseFlags(EngineFlags(line->engine), line->engine_words, kAbout).status();
}

// An error begins with the flag that it is about: where it is in a file, that place comes first.
Status WithOrigin(const Status& error, const ServeCommandLine& line) {
  if (!error.message().starts_with("--")) return error;
  const size_t end = error.message().find_first_of(" ,:=", 2);
  const auto given = line.origins.find(error.message().substr(2, end - 2));
  const bool is_elsewhere = given != line.origins.end() && given->second != kCommandLine;
  return is_elsewhere ? error.WithContext(given->second) : error;
}

// A value as YAML: JSON is YAML.
std::string YamlValue(const Flag& flag) {
  const std::optional<std::string> text = FlagValueText(flag);
  if (!text || text->empty()) return "null";
  if (const auto* const* list = std::get_if<std::vector<std::string>*>(&flag.target)) {
    return nlohmann::json(**list).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  const bool is_text = std::holds_alternative<std::string*>(flag.target) ||
                       std::holds_alternative<std::optional<std::string>*>(flag.target);
  if (!is_text) return *text;
  return nlohmann::json(*text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

// clang-format off
std::vector<Flag> ServeFlagTable(ServeFlags& c) {
  return {
      {"config", &c.config, "YAML file of flags, as `vllm serve --config` reads; the command line has precedence"},
      {"check-config", &c.check_config, "Check all values, print them with their origins, and start nothing"},
      {"revision", &c.revision, "Branch, tag or commit of a model named org/name, which is downloaded where the local cache lacks it. Default: main"},
      {"tokenizer-revision", &c.tokenizer_revision, "The same for --tokenizer. Default: --revision"},
      {"hf-token", &c.hf_token, "Token of the hub, for a model that is downloaded. Default: HF_TOKEN, or the one of a login", {.secret = true}},
      {"download-dir", &c.download_dir, "Folder of the cache of models named org/name. Default: as Python's huggingface_hub"},
      {"prefill", &c.prefill, "Engines that compute prompts, for those of --decode: long prompts then never hold up running responses", {.min = 1, .max = 512}},
      {"decode", &c.decode, "Engines that go on where those of --prefill end", {.min = 1, .max = 512}},
      {"data-parallel-external-lb", &c.external_lb, "One engine and its frontend, of several that something else balances; so does --data-parallel-rank", {.short_name = "dpe"}},
      {"data-parallel-hybrid-lb", &c.hybrid_lb, "The engines of this host and their frontend, of several hosts that something else balances", {.short_name = "dph"}},
      {"fail-on-environ-validation", &c.fail_on_environ_validation, "Refuse to start where the environment has TANDEM_ or VLLM_ variables that nothing reads, which otherwise is a warning"},
  };
}
// clang-format on

std::vector<Flag> PairFlags(FrontendConfig& frontend, EngineConfig& engine) {
  std::vector<Flag> all = FrontendFlags(frontend);
  for (const Flag& flag : EngineFlags(engine)) {
    if (FindFlag(all, "--" + std::string(flag.name)) == nullptr) all.push_back(flag);
  }
  return all;
}

namespace {

Status FillLine(const Words& args, const ModelPuller& pull, ServeCommandLine* line) {
  const std::vector<Flag> own = ServeFlagTable(line->own);
  const std::vector<Flag> pair = PairFlags(line->frontend, line->engine);
  const std::vector<Flag> all = KnownFlags(own, pair);

  // The command's own flags first: one of them names the file.
  const Words rewritten = RewriteFlags(args, all);
  ASSIGN_OR_RETURN(const Words given, MergeKeys(rewritten, all));
  ASSIGN_OR_RETURN(const PairCommandLine given_parts, SplitCommandLine(given, own, pair));
  std::string bare_model;
  std::vector<Flag> own_and_model = own;
  own_and_model.push_back({"model", &bare_model, "", {.positional = true}});
  RETURN_IF_ERROR(ParseFlags(own_and_model, given_parts.frontend, kAbout).status());
  std::vector<ConfigEntry> entries;
  const auto is_config = [&all](const std::string& word) {
    return FlagNameOf(word, all) == "config";
  };
  if (std::count_if(given.begin(), given.end(), is_config) > 1) {
    return InvalidArgumentError("--config is given twice, but one file is read");
  }
  if (!line->own.config.empty()) {
    ASSIGN_OR_RETURN(entries, ReadConfigFile(line->own.config, all));
  }

  const Words merged = MergeFile(entries, rewritten, !bare_model.empty(), all, line);
  ASSIGN_OR_RETURN(const Words words, MergeKeys(merged, all));
  ASSIGN_OR_RETURN(PairCommandLine parts, SplitCommandLine(words, own, pair));
  RETURN_IF_ERROR(ParseFlags(own_and_model, parts.frontend, kAbout).status());
  line->warnings = std::move(parts.warnings);
  ASSIGN_OR_RETURN(PairCommandLine processes,
                   SplitCommandLine(parts.engine_core, FrontendFlags(line->frontend),
                                    EngineFlags(line->engine)));
  line->frontend_words = std::move(processes.frontend);
  line->engine_words = std::move(processes.engine_core);
  RETURN_IF_ERROR(ParseWords(line));
  if (line->frontend.model.empty()) return InvalidArgumentError("no model: tandem serve MODEL");
  RETURN_IF_ERROR(UseHubCache(pull, line));
  UseDashboard(line);
  RETURN_IF_ERROR(ParseWords(line));
  return CheckApiKeys(line->frontend);
}

}  // namespace

StatusOr<ServeCommandLine> ParseServeCommandLine(const std::vector<std::string>& args,
                                                 const ModelPuller& pull) {
  ServeCommandLine line;
  const Status filled = FillLine(args, pull, &line);
  if (!filled.ok()) return WithOrigin(filled, line);
  return line;
}

std::string OriginOf(const Flag& flag, const ServeCommandLine& line) {
  const auto given = line.origins.find(std::string(flag.name));
  if (given != line.origins.end()) return given->second;
  const std::string variable = FlagVariable(flag);
  return variable.empty() ? "default" : "environment " + variable;
}

std::string EffectiveConfig(ServeCommandLine& line) {
  std::string text;
  for (const Flag& flag : PairFlags(line.frontend, line.engine)) {
    const std::string name(flag.name), origin = OriginOf(flag, line);
    if (flag.rules.secret) {
      text += "# " + name + ": " + (origin == "default" ? "none" : "set") + "  # " + origin + "\n";
      continue;
    }
    text += name + ": " + YamlValue(flag) + "  # " + origin + "\n";
  }
  return text;
}

std::string ChangedValues(ServeCommandLine& line) {
  std::string text;
  for (const Flag& flag : PairFlags(line.frontend, line.engine)) {
    const std::string origin = OriginOf(flag, line);
    if (origin == "default") continue;
    const std::string value = flag.rules.secret ? "***" : FlagValueText(flag).value_or("");
    text += (text.empty() ? "" : ", ") + std::string(flag.name) + "=" + value + " (" + origin + ")";
  }
  return text;
}

}  // namespace tandem
