# Installs the libraries, the headers, the program, and a CMake package that find_package(Reprise) reads.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)

# One export per component, so that a project that only plans never meets LibTorch.
function(reprise_install_component target export)
  install(TARGETS ${target} EXPORT ${export} FILE_SET HEADERS)
  install(EXPORT ${export} NAMESPACE Reprise:: DESTINATION ${_package_dir})
endfunction()
reprise_install_component(reprise_plan ReprisePlanTargets)
reprise_install_component(reprise RepriseTargets)
if(REPRISE_WITH_FORECAST)
  reprise_install_component(reprise_forecast RepriseForecastTargets)
endif()

configure_package_config_file(cmake/RepriseConfig.cmake.in RepriseConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES
    ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfigVersion.cmake
    cmake/RepriseDepsDir.cmake
    cmake/FindLibTorch.cmake
    cmake/FindArrowParquet.cmake
  DESTINATION ${_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
