# Installs the libraries, the headers, the program, and a CMake package that find_package(Reprise) reads.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)

install(TARGETS reprise_plan reprise EXPORT RepriseTargets FILE_SET HEADERS)
install(EXPORT RepriseTargets NAMESPACE Reprise:: DESTINATION ${_package_dir})
if(REPRISE_WITH_FORECAST)
  install(TARGETS reprise_forecast EXPORT RepriseForecastTargets FILE_SET HEADERS)
  install(EXPORT RepriseForecastTargets NAMESPACE Reprise:: DESTINATION ${_package_dir})
endif()

configure_package_config_file(cmake/RepriseConfig.cmake.in RepriseConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES
    ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfigVersion.cmake
    cmake/FindLibTorch.cmake
    cmake/FindArrowParquet.cmake
  DESTINATION ${_package_dir})
