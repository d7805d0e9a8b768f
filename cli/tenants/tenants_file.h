// A file of tenants: what each principal may have at a GPU server.
//
// A line for each: the name, then settings NAME=VALUE in any order: memory=8G, sessions=4, channels=16, commands=2048,
// bandwidth=1G (bytes a second), share=0.25 or share=25%, devices=0,2 (by number; without it all). '#' begins a
// comment. Keys are in another file: this one is no secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fairlead/command_service.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// Errors name the file, the line and what is legal.
Result<std::vector<command::Tenant>> load_tenants(const std::string& path);
/// The same of text, which `path` names in errors.
Result<std::vector<command::Tenant>> parse_tenants(std::string_view text, const std::string& path);

}  // namespace fairlead::cli
